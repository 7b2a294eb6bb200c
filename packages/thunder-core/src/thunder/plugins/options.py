"""Options of the core and of executors, checked against their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from thunder.errors import OptionError
from thunder.plugins.spec import Executor, Option
from thunder.plugins.suggest import did_you_mean, quoted

CORE = (
    Option(
        "select",
        str,
        "order",
        'who runs a call that several executors can run: the first in the user\'s order, or the fastest ("measure")',
        choices=("order", "measure"),
    ),
    Option(
        "memory",
        str,
        "keep",
        'whether a faster candidate may save more bytes for backward than PyTorch itself ("trade")',
        choices=("keep", "trade"),
    ),
    Option("measure_budget", float, 3.0, "seconds that one compilation may spend on measuring"),
)
"""The options of the core itself."""

FUEL = Option("fuel", int, None, "at most how many regions it runs in one program, the first ones; to find a wrong one")
"""An option that every executor with a fuser has."""


def resolve_options(
    user: Mapping[str, Any], executors: Iterable[Executor], core: Iterable[Option] = ()
) -> Mapping[str, Mapping[str, Any]]:
    """The value of every option, by executor and short name; those of the core are under ``"core"``.

    ``user`` is flat: ``{"example.precision": "high", "an_option_of_the_core": 3}``. What it leaves out has its default.
    Raises OptionError for an option that does not exist or a value that does not fit.
    """
    owners = {"core": tuple(core), **{executor.name: _options_of(executor) for executor in executors}}
    declared = {_full_name(owner, option): option for owner, options in owners.items() for option in options}
    for name in user:
        if name not in declared:
            raise _unknown(name, declared, owners)
    values = {
        name: _checked(name, option, user[name]) if name in user else option.default
        for name, option in declared.items()
    }
    return MappingProxyType(
        {
            owner: MappingProxyType({option.name: values[_full_name(owner, option)] for option in options})
            for owner, options in owners.items()
        }
    )


def _options_of(executor: Executor) -> tuple[Option, ...]:
    return executor.options if executor.fuser is None else (*executor.options, FUEL)


def _full_name(owner: str, option: Option) -> str:
    return option.name if owner == "core" else f"{owner}.{option.name}"


def _unknown(name: str, declared: Iterable[str], owners: Iterable[str]) -> OptionError:
    owner, dot, _ = name.partition(".")
    if dot and owner not in owners:
        active = quoted(other for other in owners if other != "core")
        return OptionError(
            f'there is no option "{name}"',
            why=f'no executor "{owner}" is selected; selected are {active}',
            fix=did_you_mean(name, declared) or f'add "{owner}" to executors=',
        )
    known = f"the options are {quoted(sorted(declared)) or 'none'}"
    return OptionError(f'there is no option "{name}"', why=known, fix=did_you_mean(name, declared))


def _checked(name: str, option: Option, value: Any) -> Any:
    """The value as the declared type; an int is taken for a float."""
    if value is None and option.default is None:
        return None
    if option.type is float and type(value) is int:
        value = float(value)
    if type(value) is not option.type:
        raise OptionError(
            f'option "{name}" must be of type {option.type.__name__}',
            why=f"its value is {value!r}",
            fix=option.help,
        )
    if option.choices is not None and value not in option.choices:
        near = did_you_mean(value, option.choices) if isinstance(value, str) else ""
        choices = ", ".join(map(repr, option.choices))
        raise OptionError(f'option "{name}" cannot be {value!r}', why=f"its choices are {choices}", fix=near)
    return value
