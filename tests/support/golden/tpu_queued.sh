gcloud compute tpus queued-resources describe maze '--format=value(state.state)' --zone=us-east5-b --project=p
gcloud compute tpus queued-resources create maze --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot --service-account=a@b --scopes=cloud-platform --async --node-count=2 --node-prefix=maze --zone=us-east5-b --project=p
gcloud compute tpus tpu-vm ssh maze-0 --worker=all '--command=mkdir -p agentrl/maze' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-1 --worker=all '--command=mkdir -p agentrl/maze' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm scp /repository/agentrl_jax/launch/tpu/worker.sh /here/agentrl_jax-0.1.0-py3-none-any.whl maze-0:agentrl/maze/ --worker=all --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm scp /repository/agentrl_jax/launch/tpu/worker.sh /here/agentrl_jax-0.1.0-py3-none-any.whl maze-1:agentrl/maze/ --worker=all --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-0 --worker=all '--command=bash agentrl/maze/worker.sh install agentrl_jax-0.1.0-py3-none-any.whl 69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b 3.12' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-1 --worker=all '--command=bash agentrl/maze/worker.sh install agentrl_jax-0.1.0-py3-none-any.whl 69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b 3.12' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-0 --worker=all '--command=bash agentrl/maze/worker.sh state' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-1 --worker=all '--command=bash agentrl/maze/worker.sh state' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm scp /here/mine.py maze-0:agentrl/maze/ --worker=all --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm scp /here/mine.py maze-1:agentrl/maze/ --worker=all --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-0 --worker=all '--command=bash agentrl/maze/worker.sh start HF_TOKEN=hf -- env '"'"'XLA_FLAGS=--a --b'"'"' venv/bin/python -m agentrl_jax.launch.train --config=mine.py:smoke --run_dir=runs/maze' --zone=us-east5-b --project=p --quiet
gcloud compute tpus tpu-vm ssh maze-1 --worker=all '--command=bash agentrl/maze/worker.sh start HF_TOKEN=hf -- env '"'"'XLA_FLAGS=--a --b'"'"' venv/bin/python -m agentrl_jax.launch.train --config=mine.py:smoke --run_dir=runs/maze' --zone=us-east5-b --project=p --quiet
