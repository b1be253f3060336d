"""Two modules for probes to find: one with callables of every kind, one that has some of them by other names."""

from __future__ import annotations

import textwrap
from pathlib import Path

SOURCE = """
    import functools

    number = 3

    def load(size, *, scale=1):
        "Loads."
        return size * scale

    def fails(text):
        raise LookupError(text)

    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    def generator(n):
        received = []
        for i in range(n):
            received.append((yield i))
        return received

    async def coroutine(n):
        import asyncio
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    async def async_generator(n):
        import asyncio
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    @functools.lru_cache
    def cached(n):
        return n

    class Base:
        def method(self, x):
            return (type(self).__name__, x)

        @staticmethod
        def static(x):
            return x

        @classmethod
        def made(cls, x):
            return (cls.__name__, x)

        @property
        def size(self):
            return 1

        also_load = load

    class Derived(Base):
        pass
"""
USER = """
    from probed_source import load as renamed, factorial, Base
    from gc import collect

    class Holder:
        load = renamed
"""


def write_probed_modules(folder: Path) -> None:
    """Write `probed_source` and `probed_user` into a folder that is to be on the path."""
    (folder / "probed_source.py").write_text(textwrap.dedent(SOURCE))
    (folder / "probed_user.py").write_text(textwrap.dedent(USER))
