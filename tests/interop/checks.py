"""What the scripts beside this one check with."""


def check(value, what):
    if not value:
        raise AssertionError(what)


def same(seen, expected, what):
    check(seen == expected, f"{what}:\n  seen     {seen!r}\n  expected {expected!r}")
