//! The configuration file of ovsdb-server: what it listens on, with the interval at which it asks silent clients whether they
//! are there. It can be changed while the server runs; options of the command line cannot, and have no interval.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::image::Image;
use crate::options::Options;
use crate::version::Version;

/// The first release that reads a configuration file.
const FIRST: Version = Version(3, 3, 0);

/// Path of the file; none if the image's server cannot read one.
pub(crate) fn path(options: &Options, image: &Image) -> Option<PathBuf> {
    let name = format!("ovn{}_db.config.json", options.kind.short());
    image.server.filter(|release| *release >= FIRST).map(|_| options.run_directory.join(name))
}

/// Writes the file; the probe is in milliseconds. A running server reads it at `ovsdb-server/reload`.
pub(crate) fn write(path: &Path, options: &Options, inactivity_probe: u64) -> io::Result<()> {
    std::fs::write(path, contents(options, inactivity_probe).to_string())
}

fn contents(options: &Options, inactivity_probe: u64) -> Value {
    let remotes = options.server_remotes().map(|remote| (remote, json!({"inactivity-probe": inactivity_probe})));
    let file = options.kind.file(&options.data_directory).display().to_string();
    json!({
        "remotes": remotes.into_iter().collect::<Map<String, Value>>(),
        "databases": { file: { "service-model": "clustered" } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::options;

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
    fn the_interval_applies_to_all_remotes() {
        let contents = contents(&options(), 30_000);
        assert_eq!(contents["remotes"]["ptcp:6642:[::]"]["inactivity-probe"], 30_000);
        assert_eq!(contents["databases"]["/data/ovnsb_db.db"]["service-model"], "clustered");
    }
}
