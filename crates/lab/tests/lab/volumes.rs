//! Volumes are placed with their first pod and stay in its zone; each fault is in effect when the call returns.

use std::time::{Duration, Instant};

use lab::{Cni, Kubernetes, Lab, LabSpec, STORAGE_CLASS};

use crate::TIMEOUT;

fn with_volumes(purpose: &str, nodes: u32, volumes: u32) -> Lab {
    let kubernetes = Kubernetes { kubelets: true, cni: Cni::Bridge, api_port: None };
    Lab::start(LabSpec::for_test(purpose).unwrap().nodes(nodes).volumes(volumes).kubernetes(kubernetes)).unwrap()
}

#[test]
fn a_volume_is_placed_with_its_first_pod_and_keeps_it_in_its_zone() {
    let lab = with_volumes("volumes", 4, 1);
    lab.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=100s"]).unwrap();
    let claim = format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\nspec: {{storageClassName: {STORAGE_CLASS}, accessModes: \
         [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    );
    lab.apply(&claim).unwrap();
    let phase = || lab.kubectl(&["get", "pvc", "data", "-o", "jsonpath={.status.phase}"]).unwrap();
    lab.kubectl(&["wait", "--for=jsonpath={.status.phase}=Pending", "pvc/data", "--timeout=60s"]).unwrap();
    let pod = |name: &str, node: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeSelector: {{kubernetes.io/hostname: {node}}}\n  \
             terminationGracePeriodSeconds: 0\n  securityContext: {{runAsUser: 1000, fsGroup: 1000}}\n  \
             containers: [{{name: main, image: 'localhost/agnhost:lab', imagePullPolicy: Never, args: [pause], volumeMounts: [{{name: \
             data, mountPath: /data}}]}}]\n  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]\n"
        )
    };
    // The first pod decides: zone 1, although zones 2 and 3 have free volumes as well.
    lab.apply(&pod("first", "n4")).unwrap();
    lab.kubectl(&["wait", "--for=condition=Ready", "pod/first", "--timeout=100s"]).unwrap();
    assert_eq!(phase(), "Bound");
    let volume = lab.kubectl(&["get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}"]).unwrap();
    assert_eq!(volume, "zone-1-1");
    lab.kubectl(&["exec", "first", "--", "sh", "-c", "echo kept > /data/file"]).unwrap();
    lab.kubectl(&["delete", "pod", "first"]).unwrap();

    // The other node of that zone has the same file; a node of another zone cannot run its pod.
    lab.apply(&pod("second", "n1")).unwrap();
    lab.kubectl(&["wait", "--for=condition=Ready", "pod/second", "--timeout=100s"]).unwrap();
    assert_eq!(lab.kubectl(&["exec", "second", "--", "cat", "/data/file"]).unwrap(), "kept\n");
    lab.kubectl(&["delete", "pod", "second"]).unwrap();
    lab.apply(&pod("third", "n2")).unwrap();
    lab.kubectl(&["wait", "--for=condition=PodScheduled=False", "pod/third", "--timeout=100s"]).unwrap();
    let path = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}";
    let why = lab.kubectl(&["get", "pod", "third", "-o", path]).unwrap();
    assert!(why.contains("didn't match PersistentVolume's node affinity"), "{why}");
}

#[test]
fn volumes_are_lost_filled_slow_and_read_only_until_they_are_healed() {
    let lab = with_volumes("volume-faults", 1, 1);
    let node = lab.node(1).unwrap();
    let volume = "zone-1-1";
    let shell = |script: &str| node.run(&["sh", "-c", &format!("cd /var/lib/lab-volumes/{volume}; {script}")]);
    shell("echo kept > file").unwrap();

    let full = lab.fill_volume(volume).unwrap();
    assert!(full.to_string().contains("filled with"), "{full}");
    let refused = shell("dd if=/dev/zero of=more bs=64k count=1").unwrap_err().to_string();
    assert!(refused.contains("No space left"), "{refused}");
    full.heal().unwrap();
    shell("dd if=/dev/zero of=more bs=64k count=1 conv=fsync").unwrap();

    // A file that is open for writing is affected, too.
    let read_only = lab.read_only_volume(volume).unwrap();
    assert!(shell("echo x >> file").unwrap_err().to_string().contains("not permitted"));
    read_only.heal().unwrap();
    shell("echo more >> file").unwrap();

    let slow = lab.slow_volume(volume, Duration::from_millis(700)).unwrap();
    assert!(slow.to_string().contains("700 ms"), "{slow}");
    let again = lab.slow_volume(volume, Duration::from_millis(700)).unwrap_err().to_string();
    assert!(again.contains("slow already"), "{again}");
    // Some write has to wait for most of the delay.
    let write = || {
        let began = Instant::now();
        shell("dd if=/dev/zero of=slow bs=4k count=1 conv=fsync").unwrap();
        began.elapsed()
    };
    let deadline = Instant::now() + TIMEOUT;
    while write() < Duration::from_millis(350) {
        assert!(Instant::now() < deadline, "no write was slow");
    }
    slow.heal().unwrap();
    write();

    let lost = lab.lose_volume(volume).unwrap();
    assert!(lost.to_string().contains("lost 3 files"), "{lost}");
    assert_eq!(shell("ls -A").unwrap(), "");
    let unknown = lab.lose_volume("zone-9-1").unwrap_err().to_string();
    assert!(unknown.contains("no volume named \"zone-9-1\"") && unknown.contains("there are: zone-1-1"), "{unknown}");

    // A lab is removed while a volume is slow: nothing stays behind.
    lab.slow_volume(volume, Duration::from_millis(500)).unwrap();
    let (record, dir) = (lab.record(), crate::remains::dir(lab.name()));
    drop(lab);
    crate::remains::await_none(&record, &dir);
    // The kernel unmounts, and releases the device, some time after the last process has ended.
    let released = lab::poll(TIMEOUT, || {
        let loops = std::process::Command::new("losetup").output().unwrap();
        let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
        if loops.contains(&dir.display().to_string()) { Err(loops) } else { Ok(()) }
    });
    assert_eq!(released, Ok(()));
}
