//! The configuration file of ovsdb-server: its listeners, with the inactivity probe of clients. It can be changed while the
//! server runs; command-line options cannot, and have no probe.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::checks::command;
use crate::control::CommandError;
use crate::error::DatabaseError;
use crate::image::Image;
use crate::options::{Options, ServerRemote};
use crate::version::Version;

/// The first release that reads a configuration file.
const FIRST: Version = Version(3, 3, 0);

/// Path of the file; none if the image's server cannot read one.
pub(crate) fn path(options: &Options, image: &Image) -> Option<PathBuf> {
    image.server.filter(|release| *release >= FIRST).map(|_| file(options))
}

/// Path of the file.
pub(crate) fn file(options: &Options) -> PathBuf {
    options.run_directory.join(format!("ovn{}_db.config.json", options.kind.short()))
}

/// An error if ports of the server need roles, and the image's server cannot read the file that gives them.
pub(crate) fn check_roles(options: &Options, image: &Image) -> Result<(), DatabaseError> {
    if options.nodes.is_none() || path(options, image).is_some() {
        return Ok(());
    }
    Err(DatabaseError::NoRoles(
        image.server.map_or_else(|| "an unknown release".to_owned(), |release| release.to_string()),
    ))
}

/// Writes the file; the probe is in milliseconds. A running server reads it at `ovsdb-server/reload`.
pub(crate) fn write(path: &Path, options: &Options, inactivity_probe: u64) -> io::Result<()> {
    std::fs::write(path, contents(options, inactivity_probe).to_string())
}

/// Why a running server does not have a new configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, io::Error),
    #[error(transparent)]
    Reload(#[from] CommandError),
}

/// Changes the probe of the running server.
pub(crate) async fn change(
    path: &Path,
    options: &Options,
    inactivity_probe: u64,
    control: &Path,
) -> Result<(), ChangeError> {
    write(path, options, inactivity_probe).map_err(|error| ChangeError::Write(path.to_owned(), error))?;
    command(control, "ovsdb-server/reload", &[]).await?;
    Ok(())
}

fn contents(options: &Options, inactivity_probe: u64) -> Value {
    let file = options.kind.file(&options.data_directory).display().to_string();
    json!({
        "remotes": remotes(&options.server_remotes(), inactivity_probe),
        "databases": { file: { "service-model": "clustered" } },
    })
}

/// The listeners in a configuration file; the probe is in milliseconds.
pub(crate) fn remotes(remotes: &[ServerRemote], inactivity_probe: u64) -> Value {
    let entry = |remote: &ServerRemote| {
        let mut options = json!({ "inactivity-probe": inactivity_probe });
        if let Some(role) = remote.role {
            options["role"] = role.into();
        }
        (remote.address.clone(), options)
    };
    Value::Object(remotes.iter().map(entry).collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{node_options, options};

    #[test]
    fn a_server_that_reads_no_file_gets_options() {
        let image = |release| Image { server: Some(release), schema: None };
        assert_eq!(path(&options(), &image(Version(3, 1, 0))), None);
        assert_eq!(path(&options(), &Image::default()), None);
        let file = path(&options(), &image(Version(3, 5, 0))).unwrap();
        assert_eq!(file, Path::new("/run/ovn/ovnsb_db.config.json"));
        let arguments = options().server_arguments(Some(&file));
        assert!(!arguments.iter().any(|argument| argument.starts_with("--remote")), "{arguments:?}");
    }

    #[test]
    fn a_server_that_cannot_give_roles_is_refused() {
        let image = |release| Image { server: release, schema: None };
        let check = |release| check_roles(&node_options(), &image(release)).map_err(|error| error.to_string());
        assert_eq!(check(Some(Version(3, 3, 0))), Ok(()));
        assert!(check(Some(Version(3, 2, 9))).unwrap_err().contains("3.3 or newer, and the image has 3.2.9"));
        assert!(check(None).unwrap_err().contains("unknown"));
        check_roles(&options(), &image(None)).unwrap();
    }

    #[test]
    fn only_the_port_on_loopback_has_the_role() {
        let contents = contents(&node_options(), 30_000);
        assert_eq!(contents["remotes"]["pssl:6648:127.0.0.1"]["role"], "ovn-controller");
        assert!(contents["remotes"]["pssl:6646:[::]"]["role"].is_null());
        assert_eq!(contents["remotes"].as_object().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_change_that_the_server_does_not_have_fails() {
        let directory = std::env::temp_dir().join(format!("server-config-{}", std::process::id()));
        let (file, control) = (directory.join("config.json"), directory.join("no-server.ctl"));
        let error = change(&file, &options(), 5000, &control).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot write") && error.contains("config.json"), "{error}");
        std::fs::create_dir_all(&directory).unwrap();
        let error = change(&file, &options(), 5000, &control).await.unwrap_err().to_string();
        assert!(error.contains("ovsdb-server/reload"), "{error}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_interval_applies_to_all_remotes() {
        let contents = contents(&options(), 30_000);
        assert_eq!(contents["remotes"]["ptcp:6642:[::]"]["inactivity-probe"], 30_000);
        assert_eq!(contents["databases"]["/data/ovnsb_db.db"]["service-model"], "clustered");
    }
}
