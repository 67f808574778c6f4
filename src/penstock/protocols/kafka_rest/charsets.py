"""The charsets of texts that come in and go out: those of the world's texts, by a list.

Python's registry also knows codecs that are no charsets, and finds names by importing modules.
"""

from typing import Final

UTF_8: Final = "utf-8"

_NAMES: Final = frozenset((
    "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be",
    "iso-8859-1", "latin1", "iso-8859-2", "iso-8859-3", "iso-8859-4", "iso-8859-5", "iso-8859-6", "iso-8859-7",
    "iso-8859-8", "iso-8859-9", "iso-8859-10", "iso-8859-11", "iso-8859-13", "iso-8859-14", "iso-8859-15",
    "iso-8859-16", "windows-874", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1255", "windows-1256", "windows-1257", "windows-1258", "koi8-r", "koi8-u",
    "macintosh", "ibm866", "big5", "gb2312", "gbk", "gb18030", "shift_jis", "euc-jp", "iso-2022-jp", "euc-kr",
))  # fmt: skip
_PYTHON_NAMES: Final = {"windows-874": "cp874", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be"}


def codec_of(charset: str) -> str | None:
    """The name of Python's codec for a charset, None for one that does not exist."""
    name = charset.lower()
    return _PYTHON_NAMES.get(name, name) if name in _NAMES else None
