"""One frozen Struct per program; defaults and meaning live in the field."""
