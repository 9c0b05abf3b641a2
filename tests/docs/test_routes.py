"""`docs/http.md` has one row for each route of the API, with its scope, and none for others."""

import re

import pytest

from gateways.http.routes import ROUTES, Route
from tests.docs.tables import DOCS, rows

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
TABLE = {(row[0], row[1].strip("`")): row[2] for row in rows((DOCS / "http.md").read_text("utf-8")) if row[0] in METHODS}


def place(route: Route) -> tuple[str, str]:
    return route.method, re.sub(r":\w+\}", "}", route.path)


@pytest.mark.parametrize("route", [pytest.param(each, id=f"{each.method} {each.path}") for each in ROUTES])
def test_a_route_is_documented_with_its_scope(route: Route) -> None:
    assert TABLE.get(place(route)) == (route.scope or "none")


def test_nothing_is_documented_that_is_not_a_route() -> None:
    assert set(TABLE) == {place(route) for route in ROUTES}
