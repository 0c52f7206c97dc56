//! A rotation of the CA, and with it of the certificate, under open sessions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench::{Figure, Goal};
use kubernetes::{Api, Patch};
use serde_json::json;

use crate::sessions::Sessions;
use crate::site::{DELAY, NAMESPACE, Published, Site, TIMEOUT, Transport};

const COMPONENTS: [(&str, &str); 4] = [
    ("signer", "ovnkube pki serve"),
    ("sb", "ovsdb-server, southbound"),
    ("kube-apiserver", "kube-apiserver"),
    ("etcd", "etcd"),
];
/// How often files are updated. Kubelets do so every minute or two, which the distribution delay covers.
const PERIOD: Duration = Duration::from_millis(500);

pub(crate) fn figures(site: &Site, count: usize, figures: &mut Vec<Figure>) -> Result<()> {
    eprintln!("a rotation of the CA under {count} TLS sessions");
    let label = format!("rotation of CA and shared certificate, {count} TLS sessions");
    let cpu = || COMPONENTS.iter().map(|(component, _)| site.cpu(component)).collect::<Result<Vec<f64>>>();
    let (seconds, dropped, again, used) = site.inside(async |api| {
        let sessions = Sessions::open(site, Transport::Tls, count).await?;
        let before = site.copy_files(&api).await?;
        let cpu_before = cpu()?;
        let start = Instant::now();
        request(&api, "ovn-ca").await?;
        let after = await_files(site, &api, |now| now.certificate != before.certificate).await?;
        while !site.shows(&after.certificate)? {
            if start.elapsed() > TIMEOUT {
                bail!("the southbound server does not show the new certificate");
            }
            tokio::time::sleep(PERIOD / 10).await;
        }
        let seconds = start.elapsed().as_secs_f64();
        let used: Vec<f64> = cpu()?.iter().zip(cpu_before).map(|(after, before)| after - before).collect();
        // Another session uses the new files, and the old ones still work.
        let again = Sessions::open(site, Transport::Tls, count).await?;
        let mut sessions = sessions;
        sessions.write(1).await?;
        Ok((seconds, sessions.dropped(), again.dropped(), used))
    })?;
    let figure = |what: &str, value: f64, unit: &str| Figure::new(format!("{label}: {what}"), value, unit);
    figures.push(figure("sessions dropped", dropped as f64, "sessions").with_goal(Goal::AtMost(0.0)));
    figures.push(
        figure("as many new sessions with the new files, failures", again as f64, "sessions")
            .with_goal(Goal::AtMost(0.0)),
    );
    let delay = DELAY.as_secs();
    figures.push(figure(
        &format!("until the server shows the new certificate, with a distribution delay of {delay} s"),
        seconds,
        "s",
    ));
    for ((_, process), used) in COMPONENTS.iter().zip(used) {
        figures.push(figure(&format!("CPU of {process}"), used, "s"));
    }
    Ok(())
}

/// Requests a new CA in this Secret.
pub(crate) async fn request(api: &Api, secret: &str) -> Result<()> {
    let annotations = json!({ "k8s.ovn.org/pki-rotate-ca": "bench" });
    let body = json!({ "metadata": { "annotations": annotations } }).to_string().into_bytes();
    Ok(api.patch(&format!("{NAMESPACE}/secrets/{secret}"), Patch::Merge, body).await.map(drop)?)
}

/// Updates the files until what is published satisfies `done`.
async fn await_files(site: &Site, api: &Api, done: impl Fn(&Published) -> bool) -> Result<Published> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        let published = site.copy_files(api).await?;
        if done(&published) {
            return Ok(published);
        }
        tokio::time::sleep(PERIOD).await;
    }
    bail!("no new certificate within {TIMEOUT:?}")
}
