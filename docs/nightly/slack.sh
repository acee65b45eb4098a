#!/usr/bin/env bash
# Post what went wrong to a channel; post nothing after a success. Needs jq, curl and WEBHOOK_URL.
set -euo pipefail
if [[ $TRACELAKE_EXIT_CODE == 0 ]]; then
    exit 0
fi
jq '{text: (["tracelake ended with \(.exit_code) on \(.lake)"]
    + [.errors[].what]
    + [.attention // [] | .[] | select(.count > 0) | "\(.kind): \(.count) in \(.runs | length) runs"]
    + [.report // empty]
    | join("\n"))}' |
    curl --fail --silent --show-error --max-time 30 \
        --header 'Content-Type: application/json' --data @- "$WEBHOOK_URL"
