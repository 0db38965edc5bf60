"""JSON Schemas: read, made from values, made wider for values that do not fit."""
