"""Events and records as bytes, the form in which they cross processes and are stored.

Nothing here pickles: what comes from outside the cluster is checked against the classes it names.
A version byte opens every record, so that a newer release's record is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, get_args

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, to_json

from tulip_actors.core.events import AllEvents, EventSource, TulipEvent
from tulip_actors.core.frozen import Json, clean_text
from tulip_actors.core.runs import Record
from tulip_actors.errors import NotSerialisable

RECORD_VERSION = 1
_VERSION = bytes((RECORD_VERSION,))


def pack_event(event: TulipEvent) -> bytes:
    """An event as bytes; fields that are None are left out, half characters replaced.

    JSON, because pydantic writes and reads it in one go: half the time of MessagePack.
    """
    try:
        return event.__pydantic_serializer__.to_json(event, exclude_none=True)
    except PydanticSerializationError:  # text that UTF-8 cannot hold
        return to_json(_cleaned(event.model_dump(exclude_none=True)))


def packed_source(source: EventSource) -> bytes:
    """The JSON of an event's source up to its number: the same for every event of a run."""
    values = {name: value for name, value in vars(source).items() if value is not None}
    del values["seq"]
    return b',"source":%b,"seq":' % to_json(_cleaned(values))[:-1]


def pack_stamped(event: TulipEvent, source: bytes, seq: int) -> bytes:
    """`pack_event` of an event that is about to get that `packed_source`, with that number.

    To write the source anew in each event would be a quarter of the work.
    """
    return b"%b%b%d}}" % (pack_event(event)[:-1], source, seq)


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def unpack_event(packed: bytes) -> TulipEvent:
    """The event that `pack_event` wrote, equal to it."""
    try:
        return _events().validate_json(packed)
    except ValidationError as error:
        raise NotSerialisable(f"not an event of this release: {error}") from error


def record_to_json(record: Record) -> dict[str, Json]:
    """A record as JSON-able data."""
    plain: dict[str, Json] = _records().dump_python(record, mode="json")
    return plain


def record_from_json(plain: Mapping[str, Json]) -> Record:
    """The record that `record_to_json` wrote, equal to it."""
    try:
        return _records().validate_python(plain)
    except ValidationError as error:
        raise NotSerialisable(f"not a record of this release: {error}") from error


def pack_record(record: Record) -> bytes:
    """A record as a version byte and JSON, which pydantic writes in one go."""
    try:
        return _VERSION + _serializer(record.kind).to_json(record)
    except PydanticSerializationError as error:  # text that UTF-8 cannot hold
        raise NotSerialisable(f"a record cannot be stored: {error}") from error


def unpack_record(packed: bytes) -> Record:
    """The record that `pack_record` wrote, equal to it."""
    if not packed:
        raise NotSerialisable("an empty record: the write was torn")
    if packed[0] != RECORD_VERSION:
        raise NotSerialisable(
            f"record version {packed[0]} is not {RECORD_VERSION}: "
            "it was written by another release of tulip_actors; read it with that one"
        )
    try:
        return _records().validate_json(packed[1:])
    except (ValidationError, ValueError) as error:
        raise NotSerialisable(f"a torn or foreign record: {error}") from error


@cache
def _events() -> TypeAdapter[TulipEvent]:
    return TypeAdapter(AllEvents)


@cache
def _records() -> TypeAdapter[Record]:
    return TypeAdapter(Annotated[Record, Field(discriminator="kind")])


@cache
def _serializer(kind: str) -> SchemaSerializer:
    """That of one class of records: a third of the time of asking the union."""
    (found,) = [one for one in get_args(Record) if one.__dataclass_fields__["kind"].default == kind]
    return TypeAdapter(found).serializer
