kubectl --namespace=default apply --filename=- <<'END'
apiVersion: v1
kind: ConfigMap
metadata:
  name: maze
data:
  mine.py: |
    """An experiment: it's $(mine)."""


    def get_config():
        return ...
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: maze
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: 20
  network:
    enableDNSHostnames: true
  replicatedJobs:
  - name: slice
    replicas: 2
    template:
      spec:
        parallelism: 4
        completions: 4
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 120
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice
              cloud.google.com/gke-tpu-topology: 4x4
            containers:
            - name: train
              image: docker.io/me/agentrl@sha256:1
              command:
              - python3
              - -m
              - agentrl_jax.launch.train
              - --config=/agentrl/mine.py:smoke
              - --run_dir=/runs/maze
              - --config.seed=1
              workingDir: /agentrl
              env: []
              resources:
                limits:
                  google.com/tpu: 4
              securityContext:
                allowPrivilegeEscalation: false
                capabilities:
                  drop:
                  - ALL
                seccompProfile:
                  type: RuntimeDefault
              volumeMounts:
              - name: files
                mountPath: /agentrl
              - name: memory
                mountPath: /dev/shm
              - name: runs
                mountPath: /runs
            volumes:
            - name: files
              configMap:
                name: maze
            - name: memory
              emptyDir:
                medium: Memory
            - name: runs
              persistentVolumeClaim:
                claimName: runs
END
