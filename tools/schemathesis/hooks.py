"""What schemathesis has to know of Seb's document: its own media types, and what is under x-constraints."""

import schemathesis

# Bodies of these types are sent as they are.
schemathesis.serializer.alias(["application/x-ndjson", "application/vnd.seb.batch"], "text/plain")


@schemathesis.hook
def before_load_schema(context, raw_schema):
    add_constraints(raw_schema)


def add_constraints(node):
    """Adds the keywords under x-constraints to the schemas that have them."""
    if isinstance(node, dict):
        node.update(node.pop("x-constraints", {}))
        for child in node.values():
            add_constraints(child)
    elif isinstance(node, list):
        for child in node:
            add_constraints(child)
