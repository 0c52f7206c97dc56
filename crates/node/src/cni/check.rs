//! CHECK: what was made is compared with what it should be.

use std::path::PathBuf;

use cni::{Attachment, Code, Failure, PodReference};
use tokio::time::{Instant, timeout};

use super::add::of_link;
use super::{Inner, wiring};
use crate::switch::rows::pod_ports;

impl Inner {
    pub(super) async fn check(
        &self,
        attachment: &Attachment,
        namespace: &str,
        pod: &PodReference,
    ) -> Result<(), Failure> {
        let _turn = self.desk.turn(attachment).await;
        let wanted = timeout(self.parts.patience, self.parts.pods.wanted(pod)).await.map_err(|_| {
            let message = format!("it is not known what pod {}/{} should have", pod.namespace, pod.name);
            Failure::new(Code::TryAgainLater, message).with_details(self.parts.pods.why_nothing_comes(pod))
        })??;
        if let Err(why) = self.parts.ports.reachable() {
            let message = "the database of Open vSwitch cannot be reached: start Open vSwitch on this node";
            return Err(Failure::new(Code::TryAgainLater, message).with_details(why));
        }
        let mtu = *self.parts.mtu.borrow();
        let userspace = self.userspace(Instant::now() + self.parts.patience).await?;
        let link = wiring::link(attachment, &wanted, mtu, userspace);
        let (checked, path) = (link.clone(), PathBuf::from(namespace));
        let mut wrong = self.beside(move || checked.check(&path)).await?.map_err(|error| of_link(&error))?;
        let ports = pod_ports(&self.parts.ports.snapshot(), Some(&attachment.container));
        match ports.iter().find(|port| port.name == link.host) {
            None => wrong.push(format!("port {} of br-int is gone", link.host)),
            Some(port) => {
                if port.logical != wanted.key.port_name() || *port.uid != *wanted.uid {
                    wrong.push(format!("port {} of br-int is of {} (UID {})", port.name, port.logical, port.uid));
                }
                if let Some(error) = &port.error {
                    wrong.push(format!("ovs-vswitchd cannot use port {}: {error}", port.name));
                }
                if !port.installed {
                    wrong.push(format!("ovn-controller has not installed port {}", port.name));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let message = format!("the network of pod {} is not as it should be", wanted.key);
        Err(Failure::new(Code::CheckFailed, message)
            .with_details(format!("{}; delete the pod, so that it is made again", wrong.join("; "))))
    }
}
