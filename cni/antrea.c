/* The CNI plugin that a container runtime starts on the Node: it forwards one call to antrea-agent and prints the answer.
 *
 * Request: one line of JSON over a unix stream socket: {"api":1,"command":"ADD",...,"config":"<stdin>"}. JSON escapes
 * line feeds, so the line feed that ends the request is the only one. Answer: '0' (success) or '1' (error), the JSON to
 * print, a line feed; without that line feed the agent died while it answered, and nothing of it is used.
 * All memory is static, every wait ends at one timer. See docs/cni.md and antrea/apis/cni.py. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LIMIT (1 << 20)   /* octets of stdin, and of an answer */
#define DEADLINE_MS 90000 /* the agent answers within 75 s, see cni_server.py */
#define CONNECT_MS 3000   /* an agent that restarts may come back in that time */
#define PRINT_MS 10000    /* for the runtime to read what is printed */
#define RETRY_MS 50
#define LATE(code) "{\"cniVersion\":\"1.1.0\",\"code\":" code ",\"msg\":\"antrea-agent did not answer in time, try again later\"}\n"

enum code { INVALID_ENV = 4, DECODING = 6, INVALID_CONFIG = 7, TRY_AGAIN = 11, NOT_AVAILABLE = 50 };

static char config[LIMIT + 1], answer[LIMIT];
static size_t config_len;
static struct out { int fd; size_t used; int failed; char buffer[4096]; } request, result = { .fd = 1 };
static volatile sig_atomic_t is_status, printing;

static void set_timer(long ms)
{
    const char *text = getenv("ANTREA_CNI_TIMEOUT_MS"); /* for tests */
    long most = text ? strtol(text, NULL, 10) : 0;
    ms = most > 0 && most < ms ? most : ms;
    setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { ms / 1000, ms % 1000 * 1000 } }, NULL);
}

static void flush(struct out *o)
{
    for (size_t at = 0; at < o->used && !o->failed;) {
        ssize_t n = write(o->fd, o->buffer + at, o->used - at);
        at += n > 0 ? (size_t)n : 0;
        o->failed = n == 0 || (n < 0 && errno != EINTR);
    }
    o->used = 0;
}

static void put_byte(struct out *o, char c)
{
    if (o->used == sizeof o->buffer)
        flush(o);
    o->buffer[o->used++] = c;
}

static void put(struct out *o, const char *text)
{
    while (*text)
        put_byte(o, *text++);
}

/* As a JSON string, quotes included. Octets that are not UTF-8 pass; the agent refuses them (code 6). */
static void put_quoted(struct out *o, const char *text, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    put_byte(o, '"');
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20)
            put(o, (char[]){ '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0 });
        else if (c == '"' || c == '\\')
            put(o, (char[]){ '\\', (char)c, 0 });
        else
            put_byte(o, (char)c);
    }
    put_byte(o, '"');
}

static void fail(enum code code, const char *what, const char *which)
{
    printing = 1;
    set_timer(PRINT_MS);
    if (code == TRY_AGAIN && is_status)
        code = NOT_AVAILABLE;
    put(&result, "{\"cniVersion\":\"1.1.0\",\"code\":");
    put(&result, (char[]){ (char)('0' + code / 10), (char)('0' + code % 10), 0 } + (code < 10));
    put(&result, ",\"msg\":");
    put_quoted(&result, what, strlen(what));
    put(&result, which ? ",\"details\":" : "");
    if (which)
        put_quoted(&result, which, strlen(which));
    put(&result, "}\n");
    flush(&result);
    _exit(1);
}

static void too_slow(int signal)
{
    (void)signal;
    if (printing || poll(&(struct pollfd){ .fd = 1, .events = POLLOUT }, 1, 0) != 1)
        _exit(1); /* nobody reads; else there is room for this */
    (void)!write(1, is_status ? LATE("50") : LATE("11"), sizeof LATE("11") - 1);
    _exit(1);
}

/* Read until the end, an error or `room` octets; what is cut short is not JSON, or has no line feed, and is refused. */
static size_t take(int fd, char *to, size_t room)
{
    size_t used = 0;
    for (ssize_t n = 1; used < room && (n > 0 || (n < 0 && errno == EINTR));) {
        n = read(fd, to + used, room - used);
        used += n > 0 ? (size_t)n : 0;
    }
    return used;
}

/* Copy the value of the top-level key "cniSocket" of the configuration, if there is one. */
static void configured_socket(char *to, size_t room)
{
    static const char key[] = "cniSocket";
    int depth = 0, found = 0; /* 1: the key was read, 2: and the colon */
    for (size_t i = 0, start; i < config_len; i++) {
        if (config[i] == '"') {
            for (start = ++i; i < config_len && config[i] != '"'; i++)
                i += config[i] == '\\';
            size_t len = (i < config_len ? i : config_len) - start;
            if (found == 2) {
                if (len == 0 || len >= room || memchr(config + start, '\\', len) || memchr(config + start, 0, len))
                    fail(INVALID_CONFIG, "cniSocket: not a path of 1 to 107 octets without backslashes", NULL);
                memset(to, 0, room);
                memcpy(to, config + start, len);
                return;
            }
            found = depth == 1 && len == sizeof key - 1 && !memcmp(config + start, key, len);
        } else if (!memchr(" \t\r\n", config[i], 4)) {
            depth += (config[i] == '{' || config[i] == '[') - (config[i] == '}' || config[i] == ']');
            found = found == 1 && config[i] == ':' ? 2 : 0;
        }
    }
}

static int dial(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/var/run/antrea/cni.sock" };
    configured_socket(address.sun_path, sizeof address.sun_path);
    for (int waited = 0;; waited += RETRY_MS) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        if (fd < 0 || waited >= CONNECT_MS)
            fail(TRY_AGAIN, "antrea-agent is not available on this Node, try again later", address.sun_path);
        close(fd);
        nanosleep(&(struct timespec){ .tv_nsec = RETRY_MS * 1000000L }, NULL);
    }
}

int main(void)
{
    static const char *const fields[][2] = {
        { "{\"api\":1,\"command\":", "CNI_COMMAND" }, { ",\"containerId\":", "CNI_CONTAINERID" },
        { ",\"netns\":", "CNI_NETNS" },               { ",\"ifName\":", "CNI_IFNAME" },
        { ",\"args\":", "CNI_ARGS" },                 { ",\"path\":", "CNI_PATH" },
    };
    const char *command = getenv("CNI_COMMAND"), *value;
    sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL);
    signal(SIGALRM, too_slow);
    signal(SIGPIPE, SIG_IGN);
    set_timer(DEADLINE_MS);
    if (!command)
        fail(INVALID_ENV, "CNI_COMMAND is not set: this is a CNI plugin, container runtimes start it", NULL);
    is_status = !strcmp(command, "STATUS");
    config_len = take(0, config, sizeof config);
    if (!strcmp(command, "VERSION")) {
        put(&result, "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n");
        flush(&result);
        return result.failed;
    }
    if (config_len > LIMIT)
        fail(DECODING, "the network configuration on stdin is larger than 1 MiB", NULL);
    request.fd = dial();
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((value = getenv(fields[i][1]))) {
            put(&request, fields[i][0]);
            put_quoted(&request, value, strlen(value));
        }
    put(&request, ",\"config\":");
    put_quoted(&request, config, config_len);
    put(&request, "}\n");
    flush(&request); /* even if it failed there may be an answer: the agent refuses some requests half read */
    size_t n = take(request.fd, answer, sizeof answer);
    if (n < 2 || answer[n - 1] != '\n' || (answer[0] != '0' && answer[0] != '1'))
        fail(TRY_AGAIN, "antrea-agent went away before it answered, try again later", NULL);
    printing = 1;
    set_timer(PRINT_MS);
    for (size_t i = 1; n > 2 && i < n; i++)
        put_byte(&result, answer[i]);
    flush(&result);
    return answer[0] == '1' || result.failed;
}
