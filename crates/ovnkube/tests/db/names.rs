//! A member whose own name has no record yet, or that of a former pod, as in a StatefulSet.

use crate::site::{Member, Site, host, until};

#[test]
fn a_member_waits_until_its_own_name_leads_to_it() {
    let site = Site::start("own-name");
    let member = site.alone(1).with(&["--host", "member-1.test"]);
    // A single member would not need its name.
    let member = Member { peers: format!("member-1.test,{}", host(2)), ..member };
    site.serve(&member);
    let message = site.await_finding(&member, "HostNotResolved");
    assert!(message.contains("member-1.test does not resolve"), "{message}");
    assert!(message.contains("waiting for its DNS record: check the cluster's DNS"), "{message}");
    site.await_finding(&member, "NotRunning");

    site.shell("echo '192.0.2.7 member-1.test' >> /etc/hosts");
    until("the message names the address of another host", || {
        site.finding(&member, "HostNotResolved")
            .filter(|message| message.contains("member-1.test resolves to 192.0.2.7"))
    });
    // Nothing was created or recorded under a name that leads elsewhere.
    site.shell(&format!("test ! -e {}", member.file()));
    assert_eq!(site.record("alone-1", "nb"), "");

    // The machine's own address: the kernel uses 127.0.1.1 as the source of no packet.
    let own = "ip -4 -o address show dev eth0 | awk '{sub(\"/.*\", \"\", $4); print $4; exit}'";
    site.shell(&format!("own=$({own}) && sed -i \"s/^192.0.2.7 /$own /\" /etc/hosts"));
    site.await_member(&member);
    assert_eq!(site.raft(&member, "Address"), "tcp:member-1.test:6643");
    site.await_resolved(&member, "HostNotResolved");
}
