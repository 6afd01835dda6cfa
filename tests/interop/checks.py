"""The checks that these scripts share."""


def check(value, what):
    if not value:
        raise AssertionError(what)


def same(seen, expected, what):
    check(seen == expected, f"{what}:\n  seen     {seen!r}\n  expected {expected!r}")
