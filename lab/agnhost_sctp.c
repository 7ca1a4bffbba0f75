/*
 * agnhost for kernels without SCTP sockets: its commands `porter` (for SERVE_SCTP_PORT_*) and `connect --protocol=sctp`
 * over a raw socket, which needs CAP_NET_RAW; all other commands, and these where the kernel has SCTP, are the real program's.
 * An association is set up by the four messages of RFC 9260, section 5.1, and aborted; no data is sent.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REAL "/usr/local/bin/agnhost"
#define MOST_PORTS 64

enum { INIT = 1, INIT_ACK = 2, ABORT = 6, COOKIE_ECHO = 10, COOKIE_ACK = 11 };
enum { STATE_COOKIE = 7, COOKIE_LENGTH = 4 };

struct header {
    uint16_t source, destination;
    uint32_t tag, checksum;
    uint8_t type, flags;
    uint16_t length;
};

struct init {
    uint32_t tag, window;
    uint16_t outbound, inbound;
    uint32_t tsn;
    uint16_t parameter, parameter_length;
    uint32_t cookie;
};

struct packet {
    struct header header;
    union {
        struct init init;
        uint32_t cookie;
    };
};

/* CRC32c, RFC 9260, appendix A. */
static uint32_t crc32c(const uint8_t *bytes, size_t length) {
    uint32_t crc = ~0u;
    while (length--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t chance(void) {
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value || !value)
        return 1;
    return value;
}

static ssize_t put(int raw, struct packet *packet, uint8_t type, size_t body, const struct sockaddr *to, socklen_t size) {
    size_t length = sizeof packet->header + body;
    packet->header.type = type;
    packet->header.flags = 0;
    packet->header.length = htons(4 + body);
    packet->header.checksum = 0;
    packet->header.checksum = crc32c((uint8_t *)packet, length);
    return sendto(raw, packet, length, 0, to, size);
}

static size_t fill_init(struct packet *packet, uint32_t tag) {
    packet->init = (struct init){.tag = tag, .window = htonl(65536), .outbound = htons(1), .inbound = htons(1), .tsn = htonl(1)};
    return offsetof(struct init, parameter);
}

/* The next whole SCTP packet, without its IP header; 0 for anything else, -1 with errno. */
static ssize_t get(int raw, struct packet *packet, struct sockaddr_storage *from, socklen_t *size) {
    uint8_t bytes[2048], *start = bytes;
    ssize_t length = recvfrom(raw, bytes, sizeof bytes, 0, (struct sockaddr *)from, size);
    if (length < 0)
        return -1;
    if (from->ss_family == AF_INET && length > 0) {
        size_t skipped = (size_t)(bytes[0] & 15) * 4;
        start += skipped;
        length -= (ssize_t)skipped;
    }
    if (length < (ssize_t)sizeof packet->header)
        return 0;
    memset(packet, 0, sizeof *packet);
    memcpy(packet, start, (size_t)length < sizeof *packet ? (size_t)length : sizeof *packet);
    return length;
}

static void answer(int raw, struct packet *asked, const struct sockaddr *to, socklen_t size, uint32_t own) {
    struct packet reply = {.header = {.source = asked->header.destination, .destination = asked->header.source}};
    if (asked->header.type == INIT) {
        reply.header.tag = asked->init.tag;
        fill_init(&reply, own);
        reply.init.parameter = htons(STATE_COOKIE);
        reply.init.parameter_length = htons(4 + COOKIE_LENGTH);
        reply.init.cookie = asked->init.tag;
        put(raw, &reply, INIT_ACK, sizeof reply.init, to, size);
    } else if (asked->header.type == COOKIE_ECHO && asked->header.tag == own) {
        reply.header.tag = asked->cookie;
        put(raw, &reply, COOKIE_ACK, 0, to, size);
    }
}

static int serve(const uint16_t *ports, int count) {
    struct pollfd raw[2] = {{.fd = socket(AF_INET, SOCK_RAW, IPPROTO_SCTP), .events = POLLIN},
                            {.fd = socket(AF_INET6, SOCK_RAW, IPPROTO_SCTP), .events = POLLIN}};
    if (raw[0].fd < 0 && raw[1].fd < 0) {
        perror("porter: raw socket");
        return 1;
    }
    uint32_t own = chance();
    for (;;) {
        if (poll(raw, 2, -1) < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < 2; i++) {
            if (!(raw[i].revents & POLLIN))
                continue;
            struct packet packet;
            struct sockaddr_storage from = {0};
            socklen_t size = sizeof from;
            if (get(raw[i].fd, &packet, &from, &size) <= 0)
                continue;
            if (from.ss_family == AF_INET6)
                ((struct sockaddr_in6 *)&from)->sin6_port = 0;
            for (int n = 0; n < count; n++)
                if (packet.header.destination == htons(ports[n]))
                    answer(raw[i].fd, &packet, (struct sockaddr *)&from, size, own);
        }
    }
}

static int porter(char **arguments) {
    uint16_t ports[MOST_PORTS];
    int count = 0, others = 0;
    extern char **environ;
    for (char **entry = environ; *entry;) {
        unsigned port;
        if (sscanf(*entry, "SERVE_SCTP_PORT_%u=", &port) == 1 && count < MOST_PORTS) {
            ports[count++] = (uint16_t)port;
            for (char **move = entry; (*move = move[1]); move++) {
            }
            continue;
        }
        others += !strncmp(*entry, "SERVE_", 6);
        entry++;
    }
    if (!count || (others && fork() == 0)) {
        execv(REAL, arguments);
        return 127;
    }
    return serve(ports, count);
}

static int say(const char *word) {
    fprintf(stderr, "%s\n", word);
    return 1;
}

/* As Go writes it: "OTHER: no route to host". */
static int failed(int error) {
    const char *why = strerror(error);
    fprintf(stderr, "OTHER: %c%s\n", tolower((unsigned char)*why), why + 1);
    return 1;
}

static long left(const struct timespec *end) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long milliseconds = (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
    return milliseconds > 0 ? milliseconds : 0;
}

static int associate(int raw, uint16_t port, double seconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    uint32_t own = chance();
    struct packet packet = {.header = {.source = htons(32768 + chance() % 28000), .destination = htons(port)}};
    uint16_t source = packet.header.source;
    if (put(raw, &packet, INIT, fill_init(&packet, own), NULL, 0) < 0)
        return failed(errno);
    struct pollfd waits = {.fd = raw, .events = POLLIN};
    while (poll(&waits, 1, (int)left(&end)) > 0) {
        struct packet got;
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        ssize_t length = get(raw, &got, &from, &size);
        if (length < 0)
            return failed(errno);
        if (!length || got.header.source != htons(port) || got.header.destination != source || got.header.tag != own)
            continue;
        if (got.header.type == ABORT)
            return say("REFUSED");
        if (got.header.type == INIT_ACK) {
            packet.header.tag = got.init.tag;
            packet.cookie = got.init.cookie;
            if (put(raw, &packet, COOKIE_ECHO, COOKIE_LENGTH, NULL, 0) < 0)
                return failed(errno);
        } else if (got.header.type == COOKIE_ACK) {
            put(raw, &packet, ABORT, 0, NULL, 0);
            return 0;
        }
    }
    return say("TIMEOUT");
}

static int connect_sctp(char *place, double seconds) {
    char *colon = strrchr(place, ':');
    if (!colon)
        return say("OTHER: the address has no port");
    *colon = 0;
    if (*place == '[')
        place++, colon[-1] = 0;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    int four = inet_pton(AF_INET, place, &v4.sin_addr) == 1;
    if (!four && inet_pton(AF_INET6, place, &v6.sin6_addr) != 1)
        return say("DNS: the address is not an IP address");
    int raw = socket(four ? AF_INET : AF_INET6, SOCK_RAW, IPPROTO_SCTP);
    if (raw < 0 || connect(raw, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, four ? sizeof v4 : sizeof v6))
        return failed(errno);
    return associate(raw, (uint16_t)atoi(colon + 1), seconds);
}

int main(int count, char **arguments) {
    int native = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (native >= 0)
        close(native);
    else if (count > 1 && !strcmp(arguments[1], "porter"))
        return porter(arguments);
    else if (count > 1 && !strcmp(arguments[1], "connect")) {
        char *place = NULL;
        double seconds = 1;
        int sctp = 0;
        for (int i = 2; i < count; i++) {
            sctp |= !strcmp(arguments[i], "--protocol=sctp");
            if (!strncmp(arguments[i], "--timeout=", 10))
                seconds = atof(arguments[i] + 10);
            else if (arguments[i][0] != '-')
                place = arguments[i];
        }
        if (sctp && place)
            return connect_sctp(place, seconds);
    }
    execv(REAL, arguments);
    perror(REAL);
    return 127;
}
