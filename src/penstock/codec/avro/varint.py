"""Avro's integers: zigzag, then seven bits a byte, the lowest first."""


def encode_long(value: int) -> bytes:
    """Any 64-bit integer; the caller has checked the range."""
    n = (value << 1) ^ (value >> 63)
    if n < 0x80:
        return bytes((n,))
    if n < 0x4000:
        return bytes((n & 0x7F | 0x80, n >> 7))
    if n < 0x200000:
        return bytes((n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_more(data: bytes, at: int, low: int) -> tuple[int, int]:
    """The rest of an integer whose first byte, already read, had its top bit set.

    Returns it still in zigzag, and where the next value starts. Raises ValueError, IndexError.
    """
    value, shift = low & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than ten bytes")
    if value >> 64:
        raise ValueError("an integer of more than 64 bits")
    return value, at
