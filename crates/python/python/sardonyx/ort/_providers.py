"""Execution providers that callers name. There is one, that of the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from sardonyx._core import ort as _core


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the names of providers and their options as texts, each provider once.

    Warns of providers that are not available and of duplicates. Raises ValueError for anything but a name, or a name with options.
    """
    return _normalized(providers, provider_options, available_provider_names, stacklevel=3)


def choose_providers(providers: Any, options: Any, *, falls_back: bool) -> list[str]:
    """Returns the providers that a session has: that of the CPU.

    What cannot be understood raises ValueError, or with ``falls_back`` warns, as the session runs on the CPU anyway.
    """
    try:
        _normalized(providers, options, list(_core.AVAILABLE_PROVIDERS), stacklevel=4)
    except ValueError as error:
        if not falls_back:
            raise
        warnings.warn(f"{error}; the session runs on {_core.CPU_PROVIDER}", stacklevel=3)
    return list(_core.AVAILABLE_PROVIDERS)


def _normalized(
    providers: Any, options: Any, available: Sequence[str], *, stacklevel: int
) -> tuple[list[str], list[dict[str, str]]]:
    if providers is None:
        return [], []
    given = [
        (name, [(str(key), str(value)) for key, value in options.items()])
        for name, options in _pairs(providers, options)
    ]
    normal, notes = _core.normalize_providers(given, list(available))
    for note in notes:
        warnings.warn(note, stacklevel=stacklevel)
    return [name for name, _ in normal], [dict(options) for _, options in normal]


def _pairs(providers: Any, options: Any) -> list[tuple[str, dict[Any, Any]]]:
    """Returns each provider with its options."""
    if isinstance(providers, (str, bytes)) or not isinstance(providers, Sequence):
        raise ValueError(f"providers is {providers!r}, which is not a list of names")
    if options is None:
        return [_pair(provider) for provider in providers]
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise ValueError(f"provider_options is {options!r}, which is not a list of dicts")
    if len(options) != len(providers):
        raise ValueError(f"there are {len(providers)} providers and options for {len(options)}")
    for provider, given in zip(providers, options, strict=True):
        if not isinstance(provider, str):
            raise ValueError(f"the provider {provider!r} is not a name, which it must be beside provider_options")
        if not isinstance(given, dict):
            raise ValueError(f"the options of the provider '{provider}' are {given!r}, which is not a dict")
    return list(zip(providers, options, strict=True))


def _pair(provider: Any) -> tuple[str, dict[Any, Any]]:
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, (tuple, list)) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, dict):
            return name, options
    raise ValueError(f"the provider {provider!r} is neither a name nor a name with a dict of options")
