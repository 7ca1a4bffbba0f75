/* Connections of one client after the other: `server PORT` answers each with one byte, `client ADDRESS PORT COUNT` makes as many.
 * `measure ADDRESS PORT COUNT SOCKET` makes WARM of them and then COUNT; a line goes to that descriptor before the COUNT and after
 * them, and what is answered is printed. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { WARM = 10 };

static struct sockaddr_in address(const char *ip, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    inet_pton(AF_INET, ip, &to.sin_addr);
    return to;
}

static int serve(const char *port) {
    struct sockaddr_in here = address("0.0.0.0", port);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 128)) return perror("listen"), 1;
    puts("listening");
    fflush(stdout);
    for (;;) {
        int one = accept(listener, NULL, NULL);
        if (one < 0 || write(one, "x", 1) != 1) return perror("accept"), 1;
        close(one);
    }
}

static int ask(const char *ip, const char *port, int count) {
    struct sockaddr_in to = address(ip, port);
    struct timeval patience = {.tv_sec = 120};
    while (count--) {
        char answer;
        int one = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(one, (struct sockaddr *)&to, sizeof to) || read(one, &answer, 1) != 1) return perror(ip), 1;
        close(one);
    }
    return 0;
}

static int mark(int teller) {
    char letter = '\n';
    if (write(teller, &letter, 1) != 1) return perror("mark"), 1;
    do {
        if (read(teller, &letter, 1) != 1) return perror("mark"), 1;
        putchar(letter);
    } while (letter != '\n');
    return 0;
}

static int measure(const char *ip, const char *port, int count, int teller) {
    return ask(ip, port, WARM) || mark(teller) || ask(ip, port, count) || mark(teller);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "server")) return serve(words[2]);
    if (count == 5 && !strcmp(words[1], "client")) return ask(words[2], words[3], atoi(words[4]));
    if (count == 6 && !strcmp(words[1], "measure")) return measure(words[2], words[3], atoi(words[4]), atoi(words[5]));
    return 2;
}
