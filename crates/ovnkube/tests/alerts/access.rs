//! Which clients may read the metrics, asked of the real API server.

use crate::testbed::{Testbed, WORKER};

/// The status of a scrape of a node's port with these curl arguments, from the control machine.
fn status(bed: &Testbed, node: &str, port: u16, arguments: &str) -> String {
    let address = bed.lab.kubectl(&["get", "node", node, "-o", "jsonpath={.status.addresses[0].address}"]).unwrap();
    let directory = bed.lab.record().endpoints.machine_kubeconfig.unwrap();
    let authority = directory.ancestors().nth(2).unwrap().join("prometheus/ca.crt");
    let script = format!(
        "curl --silent --max-time 30 --output /dev/null --write-out '%{{http_code}}' --cacert {} --resolve ovn:{port}:{address} \
         {arguments} https://ovn:{port}/metrics",
        authority.display()
    );
    bed.on("control", &script)
}

fn token(bed: &Testbed, account: &str) -> String {
    let token = bed.lab.kubectl(&["-n", "shop", "create", "token", account]).unwrap();
    format!("--header 'Authorization: Bearer {}'", token.trim())
}

/// All listeners, those of the worker's account included.
const LISTENERS: [(&str, u16); 5] = [("n1", 9102), ("n1", 9103), ("n2", 9104), ("n3", 9105), (WORKER, 9103)];

pub(crate) fn only_authorized_clients_read_the_metrics(bed: &Testbed) {
    for account in ["reader", "stranger"] {
        bed.lab.kubectl(&["-n", "shop", "create", "serviceaccount", account]).unwrap();
    }
    let binding = ["create", "clusterrolebinding", "reader", "--clusterrole=ovnkube-metrics-reader"];
    bed.lab.kubectl(&[&binding[..], &["--serviceaccount=shop:reader"]].concat()).unwrap();
    let (reader, stranger) = (token(bed, "reader"), token(bed, "stranger"));
    let garbage = "--header 'Authorization: Bearer garbage'";
    for (node, port) in LISTENERS {
        for (client, arguments, expected) in [
            ("reader", reader.as_str(), "200"),
            ("stranger", &stranger, "403"),
            ("none", "", "401"),
            ("garbage", garbage, "401"),
        ] {
            assert_eq!(status(bed, node, port, arguments), expected, "{client} at {node}:{port}");
        }
    }
    // Probes stay where kubelet finds them, and only there.
    let probe = "curl --silent --output /dev/null --write-out '%{http_code}' http://127.0.0.1:9103/readyz";
    assert_eq!(bed.on(WORKER, probe), "200");
}
