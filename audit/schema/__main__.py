"""Write the schema of the present record beside this file."""

from audit.schema import FILE, event_schema, text_of

FILE.write_text(text_of(event_schema()), encoding="utf-8")
print(FILE)
