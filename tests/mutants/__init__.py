"""``make mutants``: the decisions are changed, one change at a time, and the tests have to notice."""
