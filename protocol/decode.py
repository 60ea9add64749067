#!/usr/bin/env python3
"""An independent decoder of the Bowline protocol, written from SPEC.md alone.

    decode.py vectors/*.txt      checks test vectors: name, meaning and bytes, three lines each
    decode.py --stream FILE...   prints the frames of one direction of a connection, raw bytes
    decode.py --capture FILE...  prints those of all connections in a capture: pcap, gzip or not
"""

import gzip
import re
import struct
import sys
import zlib

LIMIT = 1 << 20
HELLO, HELLO_ACK, PING, PONG, REQUEST, CANCEL, STARTED = 1, 2, 3, 4, 5, 6, 7
REPLY, ENDED, OVERLOADED, GOODBYE, SEGMENT, CREDIT, GO_AWAY = 8, 9, 10, 11, 12, 13, 14
LONGEST = {HELLO: 16384, GOODBYE: 1024, REQUEST: LIMIT, REPLY: LIMIT, SEGMENT: LIMIT}
CRITICAL = {HELLO_ACK: 0x03, REQUEST: 0x3F, CANCEL: 0x01, REPLY: 0x31, ENDED: 0x01, SEGMENT: 0x20}
OPTION_LENGTHS = {1: 4, 2: 24, 0x8001: 1, 0x8002: 25, 0x8004: 16}
HEADER = struct.Struct("<IBBHIHHQQQIHHHHHHII")


class Wrong(Exception):
    """Bytes that are not a frame; its text is what is wrong with them."""


def require(condition, wrong):
    if not condition:
        raise Wrong(wrong)


def sections(data):
    """The sections in data, as a dictionary from tag to value."""
    found, last = {}, -1
    while data:
        require(len(data) >= 4, "section")
        tag, length = struct.unpack_from("<HH", data)
        require(tag > last and len(data) >= 4 + length, "section")
        found[tag], last, data = data[4 : 4 + length], tag, data[4 + length :]
    return found


def text(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Wrong("section") from None


def methods(data):
    """A service's name, and number:name:flags of its methods."""
    def name(data):
        require(data and len(data) > data[0], "section")
        return text(data[1 : 1 + data[0]]), data[1 + data[0] :]

    service, data = name(data)
    words, last = [f" service={service}"], -1
    while data:
        require(len(data) > 3, "section")
        number, flags = struct.unpack_from("<HB", data)
        require(number > last, "section")
        label, data = name(data[3:])
        words.append(f"{number}:{label}:{flags & 7}")
        last = number
    return " ".join(words)


def hello(h, payload):
    require(h.code in (0, 1), "field")
    who = f"client={h.client:016x}" if h.code == 0 else f"server={h.replica}.{h.core}"
    require(len(payload) >= 4, "field")
    oldest, newest, cores = struct.unpack_from("<BBH", payload)
    require(oldest <= newest and len(payload) >= 4 + 2 * cores, "field")
    ports = ",".join(str(port) for port in struct.unpack_from(f"<{cores}H", payload, 4))
    line = f"{who} versions={oldest}-{newest} ports={ports} features={h.flags >> 8:02x}"
    for tag, value in sections(payload[4 + 2 * cores :]).items():
        if tag == 1:
            require(len(value) == 8, "section")
            line += " takes=%d/%d" % struct.unpack("<II", value)
        elif tag == 2:
            line += methods(value)
        else:
            require(tag >= 0x8000, "section")
    return line


def options(h, payload):
    """The options in words, and the rest of the payload."""
    if not h.flags & 0x10:
        return "", payload
    require(h.options <= len(payload), "field")
    found, payload, line = sections(payload[: h.options]), payload[h.options :], ""
    for tag, value in found.items():
        if tag in OPTION_LENGTHS:
            require(len(value) == OPTION_LENGTHS[tag], "section")
        else:
            require(tag >= 0x8000 and (tag != 0x8003 or len(value) <= 32), "section")
        if tag == 1:
            total = int.from_bytes(value, "little")
            line += f" total={total}"
        elif tag == 2:
            key, print_ = (int.from_bytes(part, "little") for part in (value[:16], value[16:]))
            line += f" key={key:032x} fingerprint={print_:016x}"
        elif tag == 0x8001:
            line += f" class={value[0]}"
        elif tag == 0x8002:
            line += f" trace=00-{value[:16].hex()}-{value[16:24].hex()}-{value[24:].hex()}"
        elif tag == 0x8003:
            line += f" label={text(value)}"
        elif tag == 0x8004:
            line += " version=%d staleness=%dns" % struct.unpack("<QQ", value)
    require(1 not in found or total >= len(payload), "field")
    return line, payload


def yes(flag):
    return "yes" if flag else "no"


def request(h, payload):
    require(h.flags & 0x0C != 0x0C, "field")
    cause = {0: "first", 4: "hedge", 8: "re-dispatch"}[h.flags & 0x0C]
    line = f"{h.copy} method={h.code} remaining={h.span}ns cause={cause}"
    line += f" idempotent={yes(h.flags & 1)}"
    if h.flags & 2:
        require(h.other_n != h.n, "field")
        line += f" twin={h.other_n}@{h.replica}.{h.core} window={h.window}us"
    words, payload = options(h, payload)
    return f"{line}{words} payload={payload.hex()}"


def reply(h, payload):
    # What a later version may say is failed.
    status = h.code if h.code < 6 or h.code >= 256 else 3
    words, payload = options(h, payload)
    line = f"{h.copy} status={status} executed={yes(h.flags & 1)} {h.load}"
    return f"{line}{words} payload={payload.hex()}"


def cancel(h):
    reason = "caller-done"
    if h.flags & 1:
        require(h.other_n != h.n, "field")
        reason = f"twin-started by={h.other_n}@{h.replica}.{h.core}"
    return f"{h.copy} lifetime={h.span}ns reason={reason}"


def ended(h):
    require(h.code < 3, "field")
    require(not h.flags & 1 or h.other_n != h.n, "field")
    by = f" by={h.other_n}" if h.flags & 1 else ""
    return f"{h.copy} how={('withdrawn', 'aborted', 'shed')[h.code]}{by} {h.load}"


def segment(h, payload):
    require(h.code < 2 and payload, "field")
    of = ("request", "reply")[h.code]
    return f"{h.copy} of={of} offset={h.window} payload={payload.hex()}"


def goodbye(h, payload):
    require(h.code < 5, "field")
    reason = ("leaving", "protocol", "stranger", "silent", "credit")[h.code]
    return f"reason={reason} text={payload.hex()}"


def hello_ack(h):
    credit = f" requests={h.seq} bytes={h.client}" if h.flags & 2 else ""
    return f"obeys-cancels={yes(h.flags & 1)}{credit}"


FRAMES = {
    HELLO: ("hello", hello),
    HELLO_ACK: ("hello-ack", lambda h, _: hello_ack(h)),
    PING: ("ping", lambda h, _: f"token={h.seq}"),
    PONG: ("pong", lambda h, _: f"token={h.seq}"),
    REQUEST: ("request", request),
    CANCEL: ("cancel", lambda h, _: cancel(h)),
    STARTED: ("started", lambda h, _: h.copy),
    REPLY: ("reply", reply),
    ENDED: ("ended", lambda h, _: ended(h)),
    OVERLOADED: ("overloaded", lambda h, _: f"{h.copy} after={h.span}ns {h.load}"),
    GOODBYE: ("goodbye", goodbye),
    SEGMENT: ("segment", segment),
    CREDIT: ("credit", lambda h, _: f"requests={h.seq} bytes={h.client}"),
    GO_AWAY: ("go-away", lambda h, _: f"within={h.span}ns"),
}


class Header:
    def __init__(self, data):
        require(zlib.crc32(data[4:64]) == int.from_bytes(data[:4], "little"), "header-checksum")
        (_, version, self.kind, self.flags, self.length, self.n, self.code, self.client,
         self.seq, self.span, self.window, self.replica, self.core, self.other_n, running,
         queued, self.options, wait, self.payload_checksum) = HEADER.unpack_from(data)
        require(version == 1, "version")
        require(self.kind in FRAMES or self.kind >= 0x80, "kind")
        require(self.length <= LONGEST.get(self.kind, LIMIT if self.kind >= 0x80 else 0), "length")
        self.copy = f"client={self.client:016x} seq={self.seq} n={self.n}"
        self.load = f"running={running} queued={queued} wait={wait}us"


def summed(h, payload):
    """What of a payload its checksum covers."""
    if h.kind not in (REQUEST, REPLY, SEGMENT) or not h.flags & 0x20:
        return payload
    options = h.options if h.flags & 0x10 else 0
    return payload[:options] if options <= len(payload) else payload


def decode(data):
    """The meaning of the frame at the head of data, and its length; "wait" if it is not whole."""
    if len(data) < 64:
        return "wait", 0
    h = Header(data)
    end = 64 + h.length
    if len(data) < end:
        return "wait", 0
    payload = data[64:end]
    require(zlib.crc32(summed(h, payload)) == h.payload_checksum, "payload-checksum")
    if h.kind >= 0x80:
        return "skip", end
    require(not h.flags & 0xFF & ~CRITICAL.get(h.kind, 0), "flags")
    name, meaning = FRAMES[h.kind]
    return f"{name} {meaning(h, payload)}", end


def meaning(data):
    try:
        return decode(data)[0]
    except Wrong as wrong:
        return f"error {wrong}"


def check_vectors(path):
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line]
    wrong = 0
    for name, expected, data in zip(lines[0::3], lines[1::3], lines[2::3]):
        found = meaning(bytes.fromhex(data))
        if found != expected:
            wrong += 1
            print(f"{path}: {name}\n  expected {expected}\n  found    {found}")
    print(f"{path}: {len(lines) // 3} vectors, {wrong} wrong")
    return wrong


def print_stream(data, prefix=""):
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        line = meaning(data[at : at + 64 + min(length, LIMIT)])
        print(prefix + re.sub(r"payload=([0-9a-f]{64})[0-9a-f]+", r"payload=\1...", line))
        if line == "wait" or line.startswith("error"):
            return 1
        at += 64 + length
    return 0


def tcp_parts(data):
    """The parts of TCP connections in a capture: whose, whether they open it, number, and bytes."""
    order = "<" if data[:2] in (b"\xd4\xc3", b"\x4d\x3c") else ">"
    (link,) = struct.unpack_from(order + "I", data, 20)
    skip, at = {1: 14, 101: 0, 113: 16, 276: 20}[link & 0xFFFF], 24
    while at < len(data):
        (length,) = struct.unpack_from(order + "8xI", data, at)
        packet = data[at + 16 + skip : at + 16 + length]
        at += 16 + length
        if packet[0] >> 4 == 4 and packet[9] == 6:
            ends = packet[12:16], packet[16:20]
            tcp = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
        elif packet[0] >> 4 == 6 and packet[6] == 6:
            ends = packet[8:24], packet[24:40]
            tcp = packet[40 : 40 + int.from_bytes(packet[4:6], "big")]
        else:
            continue
        number = int.from_bytes(tcp[4:8], "big")
        yield (*ends, tcp[:4]), bool(tcp[13] & 2), number, tcp[(tcp[12] >> 4) * 4 :]


def print_capture(data):
    """Puts both directions of each connection together, and prints what was said."""
    ways = {}
    for whose, opens, number, part in tcp_parts(data):
        first, parts = ways.setdefault(whose, ((number + opens) % 2**32, {}))
        if part:
            parts.setdefault((number - first) % 2**32, part)
    wrong = 0
    for (_, _, ports), (_, parts) in ways.items():
        stream = b""
        for at, part in sorted(parts.items()):
            if at <= len(stream):
                stream += part[len(stream) - at :]
        sender, receiver = struct.unpack(">HH", ports)
        wrong |= print_stream(stream, f"{sender} > {receiver}: ")
    return wrong


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    if arguments[0] == "--stream":
        return any([print_stream(read(path)) for path in arguments[1:]])
    if arguments[0] == "--capture":
        return any([print_capture(read(path)) for path in arguments[1:]])
    return any([check_vectors(path) for path in arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
