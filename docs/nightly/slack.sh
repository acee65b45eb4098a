#!/usr/bin/env bash
# Post what went wrong and which incidents are new to a channel; else post nothing.
# Needs jq, curl and WEBHOOK_URL.
set -euo pipefail
message=$(jq '
def link: if .report_url then "<\(.report_url)|report>" else .report // empty end;
def counted($what): "\(.) \($what)\(if . == 1 then "" else "s" end)";
def text: gsub("&"; "&amp;") | gsub("<"; "&lt;") | gsub(">"; "&gt;");
def incident: "*\(.subject | text)*\(if .latest_run then " in \(.latest_run | text)" else "" end) (\(.kind), \(.severity), incident \(.incident))"
    + (if .cost_gpu_hours_per_day then ": \({at_most: "up to ", at_least: "at least "}[.cost_bound // ""] // "")\(.cost_gpu_hours_per_day * 10 | round / 10) GPU h a day" else "" end)
    + "\n\(.evidence // "" | text)\n\(.advice // "" | text)";
(.incidents // []) as $open
| ([$open[] | select(.new)]) as $new
| if .exit_code == 0 and $new == [] then empty else
    ([if .exit_code == 0 then "tracelake: \($new | length | counted("new incident")) on \(.lake | text)"
        else "tracelake ended with \(.exit_code) on \(.lake | text)" end]
    + [.errors[].what | text]
    + [.attention // [] | .[] | select(.count > 0) | "\(.kind): \(.count) in \(.runs | length | counted("run"))"]
    + [if $open != [] then "\($open | length | counted("open incident")), \($new | length) new" else empty end]
    + [link] | join("\n")) as $head
    | {text: $head, blocks: ([$head, ($new[:10][] | incident)]
        | map({type: "section", text: {type: "mrkdwn", text: .[:3000]}}))}
  end')
if [[ -z $message ]]; then
    exit 0
fi
curl --fail --silent --show-error --max-time 30 \
    --header 'Content-Type: application/json' --data @- "$WEBHOOK_URL" <<< "$message"
