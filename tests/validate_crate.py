"""Validate an RO-Crate with roc-validator, offline; runs in an environment of its own (crate-validator.lock).

    python validate_crate.py FOLDER CONTEXT

The validator fetches the context that the crate names; it gets the copy in CONTEXT, which the package rocrate ships.
Prints what is violated as JSON: a list of [severity, message].
"""

import json
import sys
from pathlib import Path

import requests
from rocrate_validator import services

ADDRESS = "https://w3id.org/ro/crate/1.3/context"


class Stand(requests.adapters.BaseAdapter):
    """What answers every request in the place of the network."""

    def send(self, request, **options):
        response = requests.Response()
        response.request, response.url = request, request.url
        response.status_code = 200 if request.url == ADDRESS else 404
        response.headers["Content-Type"] = "application/ld+json"
        response._content = Path(sys.argv[2]).read_bytes()
        return response

    def close(self):
        pass


requests.Session.get_adapter = lambda session, url: Stand()
result = services.validate(
    services.ValidationSettings(rocrate_uri=sys.argv[1], profile_identifier="ro-crate-1.3", no_cache=True)
)
print(json.dumps([[issue.severity.name, issue.message] for issue in result.get_issues()]))
