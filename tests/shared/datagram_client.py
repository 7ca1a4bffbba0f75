"""Programs at both ends of exchanges of datagrams: half of them only listen after they began.

`DATAGRAM_CLIENT` gets the address of the server and the number of sockets, says `connected` when each has had answers for three
seconds, and after a line of input prints for each: its kind, whether datagrams have come in the last second, its longest pause in
seconds, and how many sources the server has seen of it.
"""

from __future__ import annotations

DATAGRAM_SERVER = """
import socket, threading, time
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
server.bind(("::", 8098))
print("listening", flush=True)
sources, listeners = {}, {}
def push():
    while True:
        for name, peer in list(listeners.items()):
            server.sendto(b"1 " + name, peer)
        time.sleep(0.02)
threading.Thread(target=push, daemon=True).start()
while True:
    data, peer = server.recvfrom(100)
    sources.setdefault(data, set()).add(peer[:2])
    if data.startswith(b"listen"):
        listeners[data] = peer
    else:
        server.sendto(b"%d " % len(sources[data]) + data, peer)
"""
DATAGRAM_CLIENT = """
import json, os, socket, sys, threading, time
target, many, ended = sys.argv[1], int(sys.argv[2]), threading.Event()
family = socket.AF_INET6 if ":" in target else socket.AF_INET
results, connected = [], []
def run(kind, number):
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.connect((target, 8098))
    one.settimeout(0.02)
    name = f"{kind} {os.getpid()} {number}".encode()
    began = last = time.monotonic()
    pause, seen = 0.0, 0
    while not ended.is_set():
        now = time.monotonic()
        if kind == "talk" or now - began < 3.5:
            try:
                one.send(name)
            except OSError:
                pass
        try:
            seen = max(seen, int(one.recv(100).split()[0]))
            pause, last = max(pause, time.monotonic() - last), time.monotonic()
        except OSError:
            pass
        if now - began > 4 and name not in connected:
            connected.append(name)
            pause = 0.0
        time.sleep(0.01)
    results.append((kind, time.monotonic() - last < 1, pause, seen))
threads = [threading.Thread(target=run, args=(("talk", "listen")[n % 2], n)) for n in range(many)]
for thread in threads:
    thread.start()
while len(connected) < many:
    time.sleep(0.05)
print("connected", flush=True)
sys.stdin.readline()
ended.set()
for thread in threads:
    thread.join()
print(json.dumps(results), flush=True)
"""
