#!/usr/bin/env bash
# Mails what went wrong, and nothing when all is fine. Needs jq and mail.
set -euo pipefail
if [[ $TRACELAKE_EXIT_CODE == 0 ]]; then
    exit 0
fi
jq --raw-output '"ended: \(.ended)", "page:  \(.report)", (.errors[] | "", .what, .next // empty)' |
    mail -s "tracelake ended with $TRACELAKE_EXIT_CODE" cluster-oncall@example.com
