"""Clients and servers of the tests of application protocols, as programs for other namespaces."""

SERVER = """
import asyncio, ssl
class Serve(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, b""
    def data_received(self, data):
        *heads, self.got = (self.got + data).split(b"\\r\\n\\r\\n")
        for head in heads:
            if head.endswith(b"\\r\\n0"):
                continue # the end of a body in chunks
            with open("LOG", "ab") as log:
                log.write(head.split(b"\\r\\n")[0] + b"\\n")
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def serve2(reader, writer):
    def frame(kind, flags, stream):
        return bytes([0, 0, kind == 1, kind, flags]) + stream + b"\\x88" * (kind == 1)
    try:
        await reader.readexactly(24)
        writer.write(frame(4, 0, bytes(4)))
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3]))
            if head[3] == 1:
                writer.write(frame(1, 5, head[5:]))
                await writer.drain()
    except Exception:
        writer.close()
async def main():
    loop, secret = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secret.load_cert_chain("LOG.pem")
    ports = {80: None, 443: secret}
    kept = [await loop.create_server(Serve, None, port, ssl=how) for port, how in ports.items()]
    kept.append(await asyncio.start_server(serve2, None, 81))
    print("listening", flush=True)
    await kept[0].serve_forever()
asyncio.run(main())
"""
"""HTTP/1 at port 80, over TLS at 443, and HTTP/2 with prior knowledge at 81: to each request 200, whatever it asks for. LOG stands for a file for
the first lines of requests over HTTP/1 that have come whole, with .pem for the certificate and key of TLS."""
CLIENT = """
import json, socket, sys
to, port, mark, seconds = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]), float(sys.argv[4])
def ask(exchanges):
    count = 0
    try:
        with socket.create_connection((to, port), timeout=seconds) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for chunks in exchanges:
                for chunk in chunks:
                    peer.sendall(bytes.fromhex(chunk))
                got = b""
                while mark not in got:
                    more = peer.recv(65536)
                    if not more:
                        return [count, "closed"]
                    got += more
                count += got.count(mark)
            return [count, "open"]
    except ConnectionError:
        return [count, "reset"]
    except TimeoutError:
        return [count, "silent"]
print(json.dumps({name: ask(exchanges) for name, exchanges in json.load(sys.stdin).items()}))
"""
"""Arguments: address, port, what an answer has in it (hexadecimal), seconds to wait for one. Standard input: by name, exchanges of a
connection, each the chunks (hexadecimal) to send before an answer is read. Prints by name how many answers came, and how it ended."""
