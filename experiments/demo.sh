#!/bin/sh
# FedAvg, FedGPS and FedGPS-CF on the embedded digits, 10 clients with very different classes.
set -e
command=${1:-fedgps-ray}
for method in fedavg fedgps fedgps_cf; do
    "$command" run --dataset digits --model cnn --method "$method" --clients 10 --sampling-rate 0.5 \
        --partition dirichlet --alpha 0.1 --scenario 1 --batch-size 16 --rounds 30 --out runs/demo
done
"$command" report runs/demo
