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
apiVersion: v1
kind: ServiceAccount
metadata:
  name: maze
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: maze
rules:
- apiGroups:
  - ''
  resources:
  - pods
  - services
  verbs:
  - get
  - list
- apiGroups:
  - batch
  resources:
  - jobs
  verbs:
  - get
  - list
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: maze
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: maze
subjects:
- kind: ServiceAccount
  name: maze
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: maze
spec:
  failurePolicy:
    maxRestarts: 20
  network:
    enableDNSHostnames: true
  replicatedJobs:
  - name: slice
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 120
            nodeSelector:
              cloud.google.com/gke-accelerator: nvidia-h100-80gb
            serviceAccountName: maze
            containers:
            - name: train
              image: docker.io/me/agentrl@sha256:1
              command:
              - python3
              - -m
              - agentrl_jax.launch.train
              - --config=/agentrl/mine.py:smoke
              - --run_dir=/runs/maze
              - --config.name=it's $$(mine)
              workingDir: /agentrl
              env:
              - name: HF_TOKEN
                valueFrom:
                  secretKeyRef:
                    name: hub
                    key: HF_TOKEN
              resources:
                limits:
                  nvidia.com/gpu: 8
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
            volumes:
            - name: files
              configMap:
                name: maze
            - name: memory
              emptyDir:
                medium: Memory
END
