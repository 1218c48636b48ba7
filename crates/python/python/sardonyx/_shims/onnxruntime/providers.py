"""Execution providers that callers name. The only one is that of the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sardonyx._core import ort as _core

if TYPE_CHECKING:
    #: A provider: its name, or its name and options.
    Provider = str | tuple[str, Mapping[str, object]]
    #: Options of a provider.
    Options = Mapping[str, object]


def check_and_normalize_provider_args(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Options] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the names of providers and their options as texts, each provider once.

    Warns about duplicates and unavailable providers. Raises ValueError for anything but a name, or a name with options.
    """
    return _normalize(providers, provider_options, available_provider_names, stacklevel=3)


def choose_providers(
    providers: Sequence[Provider] | None, options: Sequence[Options] | None, *, falls_back: bool
) -> list[str]:
    """Returns the providers of a session: that of the CPU.

    Raises ValueError for invalid providers, or warns with ``falls_back``, as the session runs on the CPU anyway.
    """
    try:
        _normalize(providers, options, list(_core.AVAILABLE_PROVIDERS), stacklevel=4)
    except ValueError as error:
        if not falls_back:
            raise
        warnings.warn(f"{error}; the session runs on {_core.CPU_PROVIDER}", stacklevel=3)
    return list(_core.AVAILABLE_PROVIDERS)


def _normalize(
    providers: Sequence[Provider] | None,
    options: Sequence[Options] | None,
    available: Sequence[str],
    *,
    stacklevel: int,
) -> tuple[list[str], list[dict[str, str]]]:
    if providers is None:
        return [], []
    given = [
        (name, [(str(key), str(value)) for key, value in options.items()])
        for name, options in _pair_with_options(providers, options)
    ]
    normal, notes = _core.normalize_providers(given, list(available))
    for note in notes:
        warnings.warn(note, stacklevel=stacklevel)
    return [name for name, _ in normal], [dict(options) for _, options in normal]


def _pair_with_options(
    providers: Sequence[Provider], options: Sequence[Options] | None
) -> list[tuple[str, Options]]:
    """Returns each provider with its options."""
    if isinstance(providers, (str, bytes)) or not isinstance(providers, Sequence):
        raise ValueError(f"providers is {providers!r}, which is not a list of names")
    if options is None:
        return [_split_provider(provider) for provider in providers]
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise ValueError(f"provider_options is {options!r}, which is not a list of dicts")
    if len(options) != len(providers):
        raise ValueError(f"there are {len(providers)} providers and options for {len(options)}")
    pairs: list[tuple[str, Options]] = []
    for provider, given in zip(providers, options, strict=True):
        if not isinstance(provider, str):
            raise ValueError(f"the provider {provider!r} is not a name, which it must be beside provider_options")
        if not isinstance(given, dict):
            raise ValueError(f"the options of the provider '{provider}' are {given!r}, which is not a dict")
        pairs.append((provider, given))
    return pairs


def _split_provider(provider: object) -> tuple[str, Options]:
    """Returns the name and the options of a provider that is a name or a pair of both."""
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, (tuple, list)) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, dict):
            return name, options
    raise ValueError(f"the provider {provider!r} is neither a name nor a name with a dict of options")
