"""What schemathesis has to know of Seb's own media types: their bodies are sent as they are."""

import schemathesis

schemathesis.serializer.alias(["application/x-ndjson", "application/vnd.seb.batch"], "text/plain")
