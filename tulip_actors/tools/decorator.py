"""`@tool`: a function becomes something a model may call."""

from __future__ import annotations

import copyreg
import re
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, Unpack, cast, overload

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.frozen import FrozenDict, Json, JsonObject, freeze, freeze_object
from tulip_actors.errors import ConfigError
from tulip_actors.tools.callables import describe, is_coroutine_function, name_of
from tulip_actors.tools.policy import ToolOptions, policy_of
from tulip_actors.tools.schema import ToolSignature, hash_of, signature_of
from tulip_actors.tools.signature import Signature
from tulip_actors.tools.strict import strict_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Tool:
    """A function with a name, a description and a schema. Calling it calls the function.

    `idempotent`: within a thread, a second call with equal arguments is served the first one's
    result. `is_async` tells how the body is run: coroutines share an event loop, plain functions
    get a thread or a task of their own. `parameters` is the JSON schema of the arguments, type
    object; with `strict` in the form that providers' strict modes take; `schema_hash` tells tools
    apart that take other arguments. `signature` is for a function that does not tell what it takes.
    """

    def __init__(
        self,
        fn: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        requires_approval: bool = False,
        strict: bool = False,
        signature: Signature | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        self.name = name or name_of(fn)
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} cannot name a tool: providers take letters, digits, _ and -, "
                "at most 64; pass @tool(name=...)"
            )
        self.description = description if description is not None else describe(fn).text
        self.idempotent = idempotent
        self.requires_approval = requires_approval
        self.strict = strict
        self.is_async = is_coroutine_function(fn)
        self._take(fn, signature or signature_of(fn, self.name))
        self.policy = policy_of(
            self.name,
            options,
            is_async=self.is_async,
            idempotent=idempotent,
            takes_context=self.signature.context_parameter is not None,
        )
        update_wrapper(cast(Callable[..., object], self), fn, updated=())

    def _take(self, fn: Callable[..., object], signature: Signature) -> None:
        """Set the function, and what follows from its signature."""
        self.fn = fn
        self.signature = signature
        self.parameters: JsonObject = self.signature.parameters
        if self.strict and not self.is_method:
            self.parameters = strict_schema(self.parameters, self.name)
        self.schema_hash = hash_of(self.name, self.parameters)

    @property
    def spec(self) -> ToolSpec:
        """What a model is told."""
        return ToolSpec(self.name, self.description, self.parameters, self.strict)

    def validate(self, arguments: Mapping[str, Json]) -> FrozenDict:
        """The arguments checked and completed. Raises `ToolArgumentsInvalid`."""
        return self.signature.validate(self.name, arguments)

    def arguments_from(self, item: object) -> FrozenDict:
        """Validated arguments from a mapping of them, or from the tool's one argument."""
        names = self.signature.names
        required = self.signature.parameters.get("required")
        if isinstance(item, Mapping) and set(item) <= set(names) and (item or not required):
            return self.validate(freeze_object(item, f"arguments of {self.name}"))
        if len(names) == 1:
            return self.validate({names[0]: freeze(item, f"{self.name}.{names[0]}")})
        raise ConfigError(
            f"an item for {self.name} must be a mapping of {', '.join(names) or 'nothing'}, "
            f"not {item!r:.80}"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been decorated."""
        return self.fn(*args, **kwargs)

    @property
    def is_method(self) -> bool:
        """Whether its function waits for an object: a method, looked up on its class."""
        is_read = isinstance(self.signature, ToolSignature)  # not given by somebody else
        return is_read and self.signature.names[:1] == ("self",)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """A method that is a tool is bound to its object when it is looked up there."""
        if instance is None or not self.is_method:
            return self
        bound = object.__new__(Tool)
        bound.__dict__.update(self.__dict__)
        method = self.fn.__get__(instance, owner)
        bound._take(method, signature_of(method, self.name))
        return bound

    def is_importable(self) -> bool:
        """Whether another process finds this very tool under its function's name."""
        module = sys.modules.get(getattr(self.fn, "__module__", None) or "")
        if module is None or module.__name__ == "__main__":
            return False
        return getattr(module, getattr(self.fn, "__qualname__", ""), None) is self

    def reduce_by_value(self) -> tuple[object, ...]:
        """How the tool is pickled when it cannot be imported where it goes."""
        return copyreg.__newobj__, (Tool,), self.__dict__  # type: ignore[attr-defined]

    def __reduce__(self) -> str | tuple[object, ...]:
        # by value a tool would take along every global of its module
        return str(self.fn.__qualname__) if self.is_importable() else self.reduce_by_value()

    def __repr__(self) -> str:
        return f"Tool({self.name}({', '.join(self.signature.names)}))"


@overload
def tool(fn: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    requires_approval: bool = False,
    strict: bool = False,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    requires_approval: bool = False,
    strict: bool = False,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a function; name, description and schema come from it.

    `idempotent=True`: one execution per thread and arguments. `requires_approval=True`: a human
    allows each call before it is made. `strict=True`: for a provider's strict mode, in which a
    model is held to the schema letter by letter. Where its calls run, what they need and what may
    be done when one goes wrong: `ToolOptions`. Raises `ConfigError` for a signature that JSON
    cannot express, and for an option that makes no sense.
    """

    def decorate(function: Callable[..., object]) -> Tool:
        return Tool(
            function,
            name=name,
            description=description,
            idempotent=idempotent,
            requires_approval=requires_approval,
            strict=strict,
            **options,
        )

    return decorate if fn is None else decorate(fn)
