#!/bin/bash
# Tells Spark which GPUs this container has: {"name": "gpu", "addresses": ["0", "1"]}
set -euo pipefail
addresses="$(nvidia-smi --query-gpu=index --format=csv,noheader | awk 'NF {printf "%s\"%s\"", separator, $1; separator = ","}')"
printf '{"name": "gpu", "addresses": [%s]}\n' "$addresses"
