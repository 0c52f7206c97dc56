//! The images of Kubernetes' specs, under their own names and tags, built from Debian packages and Go programs without
//! a registry. The suite lists the names and tags (`e2e.test --list-images`).

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Programs;
use super::archive::{self, Image, Layer};
use crate::container_image::{self, Entry};
use crate::directories::{CACHE_VARIABLE, Directories, require_space};
use crate::error::{Error, Result, create_dir};
use crate::pki::Authority;
use crate::progress::Progress;
use crate::spec::Suite;

/// What specs run inside the images in addition to their main program.
const PACKAGES: &[&str] = &[
    "bash",
    "bind9-dnsutils",
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "curl",
    "iperf",
    "iproute2",
    "iptables",
    "iputils-ping",
    "netcat-openbsd",
    "nginx",
    "procps",
];

/// The container runtime provides devices; specs expect a user and a group that only the image defines.
const OPTIONS: &[&str] = &[
    "--skip=output/dev",
    "--customize-hook=chroot \"$1\" useradd --uid 1000 user-defined-in-image",
    "--customize-hook=chroot \"$1\" groupadd --gid 50000 group-defined-in-image",
    "--customize-hook=chroot \"$1\" usermod --append --groups group-defined-in-image user-defined-in-image",
];

const SPACE_MIB: u64 = 600;

/// As in the upstream image: pages below `/usr/share/nginx/html`.
const NGINX_SITE: &str = "server {\n  listen 80 default_server;\n  listen [::]:80 default_server;\n  root /usr/share/nginx/html;\n  index index.html;\n}\n";

/// Indexes of the archive's layers.
const DEBIAN: usize = 0;
const BUSYBOX: usize = 1;
const AGNHOST: usize = 2;
const NGINX: usize = 3;
const KITTEN: usize = 4;
const NAUTILUS: usize = 5;
const PAUSE: usize = 6;
const ETCD: usize = 7;
const SAMPLE_APISERVER: usize = 8;
const CONNTRACK_BUG: usize = 9;
const AGNHOST_SCTP: usize = 10;
const NONEWPRIVS: usize = 11;

/// The tag of agnhost in the base manifests of network-policy-api's suite.
const POLICY_API_AGNHOST: &str = "2.45";

/// The tar file with all images; builds it if necessary.
pub(super) fn ensure(
    directories: &Directories,
    node_image: &Path,
    programs: &Programs,
    progress: &Progress,
) -> Result<PathBuf> {
    let dir = directories.cache().join("container-images");
    let debian = ensure_debian(&dir, progress)?;
    let entries = entries(&dir, node_image, programs)?;
    let references = references(&programs.tests)?;
    let mut images: Vec<Image> = references.iter().filter_map(|reference| image(reference)).collect();
    let policy_api = images
        .iter()
        .find_map(policy_api_image)
        .ok_or_else(|| Error::Invalid(format!("e2e.test --list-images names no agnhost: {}", references.join(" "))))?;
    images.push(policy_api);
    let mut text = format!("{} {images:?}", debian.display());
    let mut bytes = 0;
    for layer in &entries {
        let (inputs, size) = container_image::inputs("the specs' images", layer)?;
        text.push_str(&inputs);
        bytes += size;
    }
    progress.step("images of Kubernetes' specs", || {
        container_image::ensure_file(&dir, "the specs' images", &text, bytes, |file| {
            let mut layers = vec![Layer::File(debian)];
            for (position, layer) in entries.iter().enumerate() {
                let dirs: &[&str] = if position + 1 == BUSYBOX { &["bin/", "tmp/", "etc/"] } else { &[] };
                layers.push(Layer::Bytes(container_image::layer(dirs, layer)?));
            }
            archive::write(file, &layers, &images)
        })
    })
}

/// Debian with the specs' tools, as a tar file.
fn ensure_debian(dir: &Path, progress: &Progress) -> Result<PathBuf> {
    let recipe = format!("{PACKAGES:?} {OPTIONS:?}");
    let name: String = container_image::sha256_hex(recipe.as_bytes()).chars().take(12).collect();
    let file = dir.join(format!("debian-{name}.tar"));
    create_dir(dir)?;
    let lock_path = dir.join("debian.lock");
    let lock = std::fs::File::create(&lock_path).map_err(Error::io(format!("cannot write {}", lock_path.display())))?;
    lock.lock().map_err(Error::io(format!("cannot lock {}", lock_path.display())))?;
    if file.exists() {
        return Ok(file);
    }
    require_space(dir, "Debian for the specs' images", SPACE_MIB, CACHE_VARIABLE)?;
    let unfinished = dir.join("debian-unfinished.tar");
    let step = "Debian for the specs' images";
    progress.step(step, || {
        let note = |line: &str| progress.note(step, line);
        crate::image::bootstrap("the specs' images", Suite::Trixie, PACKAGES, OPTIONS, &unfinished, note)
    })?;
    std::fs::rename(&unfinished, &file).map_err(Error::io(format!("cannot write {}", file.display())))?;
    Ok(file)
}

/// The contents of the layers above Debian, in the order of their indexes.
fn entries(dir: &Path, node_image: &Path, programs: &Programs) -> Result<Vec<Vec<Entry>>> {
    let (kubernetes, tests) = (&programs.kubernetes, &programs.tests);
    let certificate = ensure_certificate(&dir.join("localhost"))?;
    let busybox = node_image.join("usr/bin/busybox");
    let mut busybox_entries = bash_as_sh(container_image::shell(node_image), node_image);
    let known: Vec<String> = busybox_entries.iter().map(|entry| entry.name().to_owned()).collect();
    let applets = applets(&busybox)?.into_iter().map(|applet| format!("bin/{applet}"));
    busybox_entries
        .extend(applets.filter(|applet| !known.contains(applet)).map(|applet| Entry::Link(applet, "busybox")));
    let mut agnhost = vec![
        // Behind a link, so that a higher layer can replace it with a wrapper.
        Entry::file("usr/local/bin/agnhost", kubernetes.join("agnhost")),
        Entry::Link("agnhost".into(), "/usr/local/bin/agnhost"),
        // Specs use it to check that their own entry point was used.
        Entry::Link("agnhost-2".into(), "agnhost"),
        Entry::file("coredns", &programs.coredns),
        Entry::file("localhost.crt", &certificate.certificate),
        Entry::file("localhost.key", &certificate.key),
        Entry::Text("uploads/.keep", ""),
        Entry::Link("usr/local/bin/iperf".into(), "/usr/bin/iperf"),
    ];
    agnhost.extend(
        ["wget", "traceroute", "ifconfig", "telnet"]
            .map(|applet| Entry::Link(format!("usr/local/bin/{applet}"), "/bin/busybox")),
    );
    let nginx = vec![
        Entry::Text("etc/nginx/sites-available/default", NGINX_SITE),
        Entry::Link("var/log/nginx/access.log".into(), "/dev/stdout"),
        Entry::Link("var/log/nginx/error.log".into(), "/dev/stderr"),
    ];
    Ok(vec![
        busybox_entries,
        agnhost,
        nginx,
        vec![Entry::Text("data.json", "{\n  \"image\": \"kitten.jpg\"\n}\n")],
        vec![Entry::Text("data.json", "{\n  \"image\": \"nautilus.jpg\"\n}\n")],
        vec![Entry::file("pause", kubernetes.join("pause"))],
        vec![Entry::file("usr/local/bin/etcd", node_image.join("usr/bin/etcd"))],
        vec![Entry::file("sample-apiserver", tests.join("sample-apiserver"))],
        vec![Entry::file("regression-issue-74839", tests.join("regression-issue-74839"))],
        vec![Entry::file("agnhost", programs.policy_api.join("agnhost-sctp"))],
        vec![Entry::Setuid("usr/local/bin/nnp".into(), tests.join("nonewprivs"))],
    ])
}

/// Busybox's own shell hides variables whose names have dashes or dots from the programs it starts, and specs look for those.
fn bash_as_sh(mut entries: Vec<Entry>, node_image: &Path) -> Vec<Entry> {
    let (dir, loader) = match std::env::consts::ARCH {
        "aarch64" => ("lib/aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1"),
        _ => ("lib/x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"),
    };
    entries.retain(|entry| entry.name() != "bin/sh");
    entries.push(Entry::Link("bin/sh".into(), "bash"));
    let libraries = ["libc.so.6", "libtinfo.so.6"].map(|library| format!("{dir}/{library}"));
    let files = libraries.into_iter().chain(["bin/bash".to_owned(), loader.to_owned()]);
    entries.extend(files.map(|file| Entry::file(file.clone(), node_image.join("usr").join(file))));
    entries
}

/// The definition of an image; `None` for images that no spec here needs.
fn image(reference: &str) -> Option<Image> {
    let (_registry, path) = reference.split_once('/')?;
    let (name, _tag) = path.rsplit_once(':')?;
    let (layers, entrypoint, arguments, user): (&[usize], &[&str], &[&str], _) = match name {
        "e2e-test-images/agnhost" => (&[DEBIAN, AGNHOST], &["/agnhost"], &["pause"], ""),
        "e2e-test-images/kitten" => (&[DEBIAN, AGNHOST, KITTEN], &["/agnhost"], &["test-webserver"], ""),
        "e2e-test-images/nautilus" => (&[DEBIAN, AGNHOST, NAUTILUS], &["/agnhost"], &["test-webserver"], ""),
        "e2e-test-images/busybox" => (&[BUSYBOX], &[], &["sh"], ""),
        "e2e-test-images/nginx" => (&[DEBIAN, NGINX], &[], &["nginx", "-g", "daemon off;"], ""),
        "e2e-test-images/nonroot" => (&[DEBIAN], &[], &["bash"], "1234"),
        "e2e-test-images/sample-apiserver" => (&[DEBIAN, SAMPLE_APISERVER], &["/sample-apiserver"], &[], ""),
        "e2e-test-images/nonewprivs" => (&[NONEWPRIVS], &[], &["/usr/local/bin/nnp"], ""),
        "e2e-test-images/regression-issue-74839" => (&[CONNTRACK_BUG], &["/regression-issue-74839"], &[], ""),
        "e2e-test-images/glibc-dns-testing"
        | "e2e-test-images/perl"
        | "e2e-test-images/ipc-utils"
        | "build-image/distroless-iptables" => (&[DEBIAN], &[], &["bash"], ""),
        "pause" => (&[PAUSE], &["/pause"], &[], ""),
        "etcd" => (&[DEBIAN, ETCD], &[], &["etcd"], ""),
        _ => return None,
    };
    Some(Image {
        reference: reference.to_owned(),
        layers: layers.to_vec(),
        entrypoint: entrypoint.to_vec(),
        arguments: arguments.to_vec(),
        user,
    })
}

/// The agnhost of network-policy-api's pods, based on that of Kubernetes' specs: with a wrapper that works without SCTP
/// in the kernel.
fn policy_api_image(agnhost: &Image) -> Option<Image> {
    let (name, _tag) = agnhost.reference.rsplit_once(':').filter(|(name, _)| name.ends_with("/agnhost"))?;
    let mut image = agnhost.clone();
    image.reference = format!("{name}:{POLICY_API_AGNHOST}");
    image.layers.push(AGNHOST_SCTP);
    Some(image)
}

/// The image references that the suite uses.
fn references(tests: &Path) -> Result<Vec<String>> {
    let mut references: Vec<String> =
        output(Command::new(tests.join("e2e.test")).arg("--list-images"))?.lines().map(str::to_owned).collect();
    // The suite prints a map, in random order.
    references.sort();
    Ok(references)
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let listed = output(Command::new(busybox).arg("--list"))?;
    Ok(listed.lines().filter(|applet| *applet != "busybox").map(str::to_owned).collect())
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io(format!("cannot run {name}")))?;
    if !output.status.success() {
        return Err(Error::Invalid(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// For agnhost's TLS servers; no client verifies it.
fn ensure_certificate(dir: &Path) -> Result<crate::pki::Identity> {
    let identity = crate::pki::Identity { certificate: dir.join("localhost.crt"), key: dir.join("localhost.key") };
    if identity.certificate.exists() && identity.key.exists() {
        return Ok(identity);
    }
    let addresses = [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
    Authority::create(dir, "conformance")?.issue("localhost", "localhost", None, &["localhost"], &addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_images_that_specs_need_are_built() {
        let agnhost = image("example.org/e2e-test-images/agnhost:2.63.0").unwrap();
        assert_eq!((agnhost.layers, agnhost.entrypoint), (vec![DEBIAN, AGNHOST], vec!["/agnhost"]));
        assert_eq!(image("example.org/e2e-test-images/nonroot:1.5").unwrap().user, "1234");
        assert_eq!(image("example.org/pause:3.10").unwrap().layers, [PAUSE]);
        // Images that need a pull secret must not be available without one.
        assert_eq!(image("example.org/k8s-authenticated-test/agnhost:2.6"), None);
        assert_eq!(image("example.org/sig-storage/csi-attacher:v4.8.1"), None);
        assert_eq!(image("odd"), None);
    }

    #[test]
    fn policy_api_has_its_own_agnhost() {
        let agnhost = image("example.org/e2e-test-images/agnhost:2.63.0").unwrap();
        let own = policy_api_image(&agnhost).unwrap();
        assert_eq!(own.reference, format!("example.org/e2e-test-images/agnhost:{POLICY_API_AGNHOST}"));
        assert_eq!(own.layers, [DEBIAN, AGNHOST, AGNHOST_SCTP]);
        assert_eq!(policy_api_image(&image("example.org/pause:3.10").unwrap()), None);
    }
}
