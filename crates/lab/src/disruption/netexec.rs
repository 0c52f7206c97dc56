//! A Deployment of agnhost netexec servers behind a Service: paths to it show packet loss caused by endpoint removal
//! and rolling updates.

use std::net::SocketAddr;

use crate::error::{Error, Result};
use crate::probe::{Network, PathSpec, Protocol, Server, Workload};
use crate::underlay::OUTSIDE;

use super::testbed::Testbed;

const NAMESPACE: &str = "probe";
const NODE_PORT: u16 = 30078;
const TCP_PORT: u16 = 80;
const UDP_PORT: u16 = 81;

#[derive(Debug)]
pub(super) struct NetexecDeployment;

impl NetexecDeployment {
    /// Returns when all of its pods are ready.
    pub(super) fn create(testbed: &Testbed<'_>, size: u32) -> Result<Self> {
        testbed.apply(&manifest(size))?;
        testbed.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/fleet", "--timeout=170s"])?;
        Ok(Self)
    }

    /// New connections and datagrams. (An established connection ends with its pod, whatever the network does.)
    pub(super) fn paths(&self, testbed: &Testbed<'_>, workload: &Workload) -> Result<Vec<PathSpec>> {
        let service = testbed.get(&["-n", NAMESPACE, "service", "fleet"])?;
        let address = service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
        let address = address.ok_or_else(|| Error::Invalid("Service probe/fleet has no ClusterIP".into()))?;
        let outside = Network { name: OUTSIDE.into(), file: testbed.machine(OUTSIDE)?.network(), own: false };
        let node = workload.node_address(&workload.nodes()[0])?;
        let path = |route: &str, protocol, from: &Network, to| PathSpec {
            route: route.into(),
            protocol,
            from: from.clone(),
            to,
            server: Server::Netexec,
            sources: Vec::new(),
            reference: false,
        };
        let client = workload.client();
        Ok(vec![
            path("pod → fleet", Protocol::TcpNew, client, SocketAddr::new(address, TCP_PORT)),
            path("pod → fleet", Protocol::Udp, client, SocketAddr::new(address, UDP_PORT)),
            path("outside → NodePort of fleet", Protocol::TcpNew, &outside, SocketAddr::new(node, NODE_PORT)),
        ])
    }

    pub(super) fn remove(self, testbed: &Testbed<'_>) -> Result<()> {
        testbed.kubectl(&["-n", NAMESPACE, "delete", "deployment/fleet", "service/fleet"])?;
        let gone = ["-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", "app=fleet", "--timeout=170s"];
        testbed.kubectl(&gone).map(|_| ())
    }
}

/// A terminating pod keeps answering for some seconds, as graceful servers do, until no client sends to it any more.
fn manifest(size: u32) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: fleet, namespace: {NAMESPACE}}}
spec:
  replicas: {size}
  selector: {{matchLabels: {{app: fleet}}}}
  strategy: {{rollingUpdate: {{maxSurge: 25%, maxUnavailable: 0}}}}
  template:
    metadata: {{labels: {{app: fleet}}}}
    spec:
      terminationGracePeriodSeconds: 15
      securityContext: {{seccompProfile: {{type: RuntimeDefault}}}}
      topologySpreadConstraints:
        - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {{matchLabels: {{app: fleet}}}}}}
      containers:
        - name: netexec
          image: localhost/agnhost:lab
          args: [netexec, --http-port=8080, --udp-port=8081, --delay-shutdown=5]
          readinessProbe: {{httpGet: {{port: 8080, path: /healthz}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: fleet, namespace: {NAMESPACE}}}
spec:
  type: NodePort
  selector: {{app: fleet}}
  ports:
    - {{name: http, port: {TCP_PORT}, targetPort: 8080, nodePort: {NODE_PORT}}}
    - {{name: udp, protocol: UDP, port: {UDP_PORT}, targetPort: 8081}}
"
    )
}
