"""Files that an operator names on the command line: whatever they are, no more is read than a limit."""

from __future__ import annotations

from pathlib import Path


def read_local(path: Path, bytes_max: int, begins: tuple[bytes, ...] = ()) -> bytes:
    """The content of a file, which may as well be a device without an end.

    Args:
        path: the file's.
        bytes_max: the largest size, inclusive; a byte more is read at most.
        begins: what the content must begin with, one of them, all of one length; a file that does not is read no
            further. Empty: anything.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger, begins otherwise, or no file can have the name.
    """
    with path.open("rb") as file:
        head = file.read(min(len(begins[0]), bytes_max + 1)) if begins else b""
        if begins and head not in begins:
            raise ValueError(f"it does not begin with {' or '.join(item.decode('ascii') for item in begins)}")
        data = head + file.read(bytes_max + 1 - len(head))
    if len(data) > bytes_max:
        raise ValueError(f"larger than {bytes_max} bytes")
    return data
