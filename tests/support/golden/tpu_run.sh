gcloud compute tpus tpu-vm describe maze '--format=value(state)' --zone=us-east5-b
gcloud compute tpus tpu-vm create maze --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite --zone=us-east5-b
gcloud compute tpus tpu-vm ssh maze --worker=all '--command=mkdir -p agentrl/maze' --zone=us-east5-b --quiet
gcloud compute tpus tpu-vm scp /repository/agentrl_jax/launch/tpu/worker.sh /here/agentrl_jax-0.1.0-py3-none-any.whl maze:agentrl/maze/ --worker=all --zone=us-east5-b --quiet
gcloud compute tpus tpu-vm ssh maze --worker=all '--command=bash agentrl/maze/worker.sh install agentrl_jax-0.1.0-py3-none-any.whl 69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b 3.12' --zone=us-east5-b --quiet
gcloud compute tpus tpu-vm ssh maze --worker=all '--command=bash agentrl/maze/worker.sh state' --zone=us-east5-b --quiet
gcloud compute tpus tpu-vm scp /here/mine.py maze:agentrl/maze/ --worker=all --zone=us-east5-b --quiet
gcloud compute tpus tpu-vm ssh maze --worker=all '--command=bash agentrl/maze/worker.sh start -- env '"'"'XLA_FLAGS=--a --b'"'"' venv/bin/python -m agentrl_jax.launch.train --config=mine.py:smoke --run_dir=runs/maze --config.seed=1 '"'"'--config.name=it'"'"'"'"'"'"'"'"'s $(mine)'"'"'' --zone=us-east5-b --quiet
