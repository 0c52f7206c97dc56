//! Persistent volumes of a lab: file systems of a fixed size that every node of one zone has mounted, as a cloud's zonal
//! disks are reachable from one zone only.
//!
//! Each is an ext4 file system in a sparse file of the lab's directory, mounted through a loop device that the kernel
//! releases with the last mount, that is with the machines. PersistentVolumes of type `local` present them to Kubernetes,
//! and a StorageClass with `WaitForFirstConsumer` lets the scheduler choose the zone. No provisioner runs.

use serde_json::{Value, json};

use crate::error::{Error, Result, create_dir};
use crate::machine::Machine;
use crate::record::Record;
use crate::spec::LabSpec;
use crate::supervisor::Supervisor;
use crate::underlay::{CONTROL, node_name};

/// The lab's StorageClass.
pub const STORAGE_CLASS: &str = "lab-zonal";
/// Nodes alternate between this many zones.
const ZONES: u32 = 3;
/// Where volumes are mounted on nodes.
const DIRECTORY: &str = "/var/lib/lab-volumes";
/// Sparse: it takes only what is written.
const SIZE: &str = "1Gi";
const SIZE_MIB: u32 = 1024;

/// The zone of node `index`, both counted from 1.
pub(crate) fn zone(index: u32) -> u32 {
    (index - 1) % ZONES + 1
}

/// The label `topology.kubernetes.io/zone` of the nodes of a zone.
pub(crate) fn zone_name(zone: u32) -> String {
    format!("zone-{zone}")
}

/// A volume, by its zone and its number in the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Volume {
    zone: u32,
    number: u32,
}

impl Volume {
    /// As many in each zone as the lab was asked for.
    pub(crate) fn all(spec: &LabSpec) -> Vec<Self> {
        let zones = 1..=spec.nodes.min(ZONES);
        zones.flat_map(|zone| (1..=spec.volumes).map(move |number| Self { zone, number })).collect()
    }

    /// Looks a volume up by the name of its PersistentVolume; the error lists the existing ones.
    pub(crate) fn find(record: &Record, name: &str) -> Result<Self> {
        let all = Self::all(&record.spec);
        all.iter().copied().find(|volume| volume.name() == name).ok_or_else(|| Error::Unknown {
            kind: "volume",
            name: name.to_owned(),
            lab: record.name.clone(),
            known: if all.is_empty() {
                "none (`lab up --volumes N` creates some)".to_owned()
            } else {
                all.iter().map(|volume| volume.name()).collect::<Vec<_>>().join(", ")
            },
        })
    }

    /// The name of its PersistentVolume: `zone-1-2`.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", zone_name(self.zone), self.number)
    }

    /// Its path on the nodes of its zone.
    pub(crate) fn path(self) -> String {
        format!("{DIRECTORY}/{}", self.name())
    }

    /// Nodes of its zone, which have it mounted.
    fn nodes(self, spec: &LabSpec) -> impl Iterator<Item = String> + use<> {
        (1..=spec.nodes).filter(move |index| zone(*index) == self.zone).map(node_name)
    }

    /// A node that has it mounted: they all share one file system.
    pub(crate) fn node(self) -> String {
        node_name(self.zone)
    }

    fn manifest(self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": self.name() },
            "spec": {
                "capacity": { "storage": SIZE },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": STORAGE_CLASS,
                "local": { "path": self.path() },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone_name(self.zone)] },
                ] }] } },
            },
        })
    }
}

/// Creates the volumes, mounts them on the nodes of their zone, and creates their PersistentVolumes.
pub(crate) fn start(supervisor: &Supervisor) -> Result<()> {
    let spec = &supervisor.spec;
    if spec.volumes == 0 {
        return Ok(());
    }
    supervisor.progress.step("volumes", || {
        let directory = supervisor.dir().join("volumes");
        create_dir(&directory)?;
        for volume in Volume::all(spec) {
            let image = directory.join(volume.name()).display().to_string();
            let nodes = volume.nodes(spec).map(|node| supervisor.machine(&node)).collect::<Result<Vec<_>>>()?;
            mount(&nodes, &image, &volume.path())?;
        }
        supervisor.machine(CONTROL)?.run_with_input(&["kubectl", "apply", "-f", "-"], &manifest(spec)).map(|_| ())
    })
}

fn mount(nodes: &[Machine], image: &str, path: &str) -> Result<()> {
    let Some((first, others)) = nodes.split_first() else { return Ok(()) };
    // Without blocks reserved for root, so that a full volume is full for every user.
    let create = "set -e; truncate -s \"$3\"M \"$1\"; mke2fs -q -t ext4 -m 0 -E lazy_itable_init=1,lazy_journal_init=1 \"$1\"; \
                  mkdir -p \"$2\"; mount -o loop,noatime \"$1\" \"$2\"; rmdir \"$2/lost+found\"; findmnt -n -o SOURCE \"$2\"";
    let device = first.run(&["sh", "-c", create, "volume", image, path, &SIZE_MIB.to_string()])?;
    for node in others {
        // The same device, and so the same file system: two loop devices of one file would corrupt it.
        node.run(&["sh", "-c", "mkdir -p \"$2\" && mount -o noatime \"$1\" \"$2\"", "volume", device.trim(), path])?;
    }
    Ok(())
}

fn manifest(spec: &LabSpec) -> String {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": STORAGE_CLASS },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let volumes = Volume::all(spec).into_iter().map(Volume::manifest);
    let items: Vec<Value> = std::iter::once(class).chain(volumes).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_belong_to_the_zones_that_nodes_have() {
        let names = |nodes, volumes| {
            let spec = LabSpec::new("v").nodes(nodes).volumes(volumes);
            Volume::all(&spec).into_iter().map(Volume::name).collect::<Vec<_>>()
        };
        assert_eq!(names(2, 2), ["zone-1-1", "zone-1-2", "zone-2-1", "zone-2-2"]);
        assert_eq!(names(5, 1), ["zone-1-1", "zone-2-1", "zone-3-1"]);
        assert!(names(3, 0).is_empty());
        let spec = LabSpec::new("v").nodes(5).volumes(1);
        let first = Volume::all(&spec)[0];
        assert_eq!(
            (first.nodes(&spec).collect::<Vec<_>>(), first.node()),
            (vec!["n1".into(), "n4".into()], "n1".into())
        );
        assert_eq!((1..=5).map(zone).collect::<Vec<_>>(), [1, 2, 3, 1, 2]);
    }
}
