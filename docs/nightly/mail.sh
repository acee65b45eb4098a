#!/usr/bin/env bash
# Mail what went wrong; send nothing after a success. Needs jq and mail.
set -euo pipefail
if [[ $TRACELAKE_EXIT_CODE == 0 ]]; then
    exit 0
fi
jq --raw-output '"ended: \(.ended)", "page:  \(.report_url // .report)", (.errors[] | "", .what, .next // empty)' |
    mail -s "tracelake ended with $TRACELAKE_EXIT_CODE" cluster-oncall@example.com
