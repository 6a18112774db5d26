"""A small dictionary of settings, namespace -> key -> value, kept in one file.

    {"checksum": "89abcdef", "format": 1, "tables": {"ORDER_TOPIC_CONFIG": {"orders": "b0:4;b1:4"}}}

Law: a change is durable before it is seen, and a file that is not exactly what was saved stops the start (exit code 2)
instead of beginning empty: orderly topics whose settings vanish silently lose their order.
A change swaps in a new dictionary, so a change on another thread disturbs no reader; two changes at a time are the
caller's to prevent. Does not know: where the bytes are kept, what a setting means.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import crc32c

from model.errors import NewerFormat, Refused, StartError
from namesrv.config import KvLimits
from namesrv.kvfile import Keeper

FORMAT = 1
NAME_BYTES_MAX = 255  # of a namespace or key; topics, the usual keys, have at most 127
NOTHING: Mapping[str, str] = MappingProxyType({})

Tables = Mapping[str, Mapping[str, str]]


class DamagedSettings(StartError):
    means = "what was stored there is not what is there now; starting without it would silently drop settings"
    do = "restore the file from a backup, or move it away to begin with no settings at all"


class KvConfig:
    def __init__(self, keeper: Keeper, limits: KvLimits) -> None:
        self._keeper = keeper
        self._limits = limits
        saved = keeper.load()
        self._tables: Tables = {} if saved is None else decode(saved)
        self._settled = True  # False: a save failed, so the file may hold either of two dictionaries

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, NOTHING).get(key)

    def table(self, namespace: str) -> Mapping[str, str]:
        """All of a namespace; empty for one that does not exist."""
        return MappingProxyType(self._tables.get(namespace, NOTHING))

    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted(self._tables))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Durable when this returns; Refused when it would be too large."""
        for what, name in (("namespace", namespace), ("key", key)):
            if not 0 < _size(what, name) <= NAME_BYTES_MAX:
                raise Refused(f"the {what} has {_size(what, name)} bytes", do=f"use 1 to {NAME_BYTES_MAX}")
        if _size("value", value) > self._limits.value_bytes_max:
            raise Refused(f"the value has {_size('value', value)} bytes; {self._limits.value_bytes_max} are allowed",
                          do="shorten it, or raise kv.value_bytes_max")
        if self._settled and self.get(namespace, key) == value:
            return
        tables = {**self._tables, namespace: {**self.table(namespace), key: value}}
        data = encode(tables)
        if len(data) > self._limits.file_bytes_max:
            raise Refused(f"with this setting the file would have {len(data)} bytes; {self._limits.file_bytes_max} are "
                          f"allowed", do="delete settings, or raise kv.file_bytes_max")
        self._save(data, tables)

    def delete(self, namespace: str, key: str) -> None:
        """Durably gone when this returns; what is not there need not go. A namespace goes with its last key."""
        if self._settled and self.get(namespace, key) is None:
            return
        left = {name: value for name, value in self.table(namespace).items() if name != key}
        tables = {**self._tables, namespace: left}
        if not left:
            del tables[namespace]
        self._save(encode(tables), tables)

    def _save(self, data: bytes, tables: Tables) -> None:
        self._settled = False
        self._keeper.save(data)
        self._tables = tables
        self._settled = True


def encode(tables: Tables) -> bytes:
    plain = json.dumps(tables, ensure_ascii=False, sort_keys=True).encode()
    record = {"checksum": f"{crc32c.crc32c(plain):08x}", "format": FORMAT, "tables": tables}
    return (json.dumps(record, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode()


def decode(data: bytes) -> dict[str, dict[str, str]]:
    """What `encode` was given; DamagedSettings for bytes that it never wrote."""
    record = _parse(data)
    version = record.get("format")
    if type(version) is int and version > FORMAT:
        raise NewerFormat(f"the settings file has format {version}, this release knows up to {FORMAT}")
    tables = record.get("tables")
    if not _is_tables(tables) or not _gives(tables, data):
        raise DamagedSettings(f"the settings file ({len(data)} bytes) is damaged")
    return tables


def _is_tables(tables: Any) -> TypeGuard[dict[str, dict[str, str]]]:
    return isinstance(tables, dict) and all(
        isinstance(table, dict) and all(isinstance(value, str) for value in table.values()) for table in tables.values()
    )


def _gives(tables: Tables, data: bytes) -> bool:
    try:
        return encode(tables) == data
    except UnicodeEncodeError:  # JSON can spell half a character; `put` never let one in
        return False


def _parse(data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, a number with too many digits
        return {}
    return record if isinstance(record, dict) else {}


def _size(what: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise Refused(f"the {what} is not valid text ({error.reason})", do="send UTF-8") from None
