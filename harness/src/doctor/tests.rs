//! An examination of hosts that are made up.

use super::*;

fn quiet() -> Examination {
    Examination {
        host: HostFacts {
            cpu: "AMD EPYC 9654".into(),
            cores: 16,
            memory: 64 << 30,
            arch: "x86_64".into(),
            os: "Debian GNU/Linux 13 (trixie)".into(),
            kernel: "6.12.43".into(),
            governor: Some("performance".into()),
            smt: Some(false),
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "2f0e".into(),
        },
        turbo: Some(false),
        caps: None,
        now: Some(Now { load: [0.1, 0.05, 0.01], busy_share: 0.002, steal_share: 0.0 }),
        open_files: Some([1024, 1_048_576]),
        docker: Ok("28.3.1".into()),
        tools: [("java", "17.0.15"), ("mvn", "3.8.7"), ("npm", "11.19.1"), ("pip", "23.0.1")]
            .map(|(tool, version)| (tool.to_owned(), Some(version.to_owned())))
            .into(),
        cache: Cache {
            dir: "/home/weir/.cache/weir".into(),
            free: 100 << 30,
            pieces: vec![("kafka 4.4.0".into(), Presence::Proven), ("chdb 26.7.3-stable.1".into(), Presence::Proven)],
        },
        flags: Vec::new(),
        obstacles: Vec::new(),
    }
}

fn shared() -> Examination {
    let mut found = quiet();
    found.host = HostFacts {
        governor: None,
        smt: Some(true),
        cgroup: "v1".into(),
        virtualisation: Some("kvm".into()),
        swap: 2 << 30,
        ..found.host
    };
    found.turbo = None;
    let why = Unenforced::NotPermitted { dir: "/sys/fs/cgroup/cpu".into(), euid: 1000 };
    let now = Now { load: [3.0, 2.5, 2.0], busy_share: 0.61, steal_share: 0.043 };
    found.flags = host::flags(&found.host, &Hierarchy::none(why.clone())).into_iter().map(Remark::from).collect();
    found.flags.extend(noise(&now).map(Remark::from));
    found.caps = Some(Refusal { reason: why.to_string(), remedy: why.remedy() });
    found.now = Some(now);
    found.docker = Err("/var/run/docker.sock: No such file or directory (os error 2)".into());
    found.tools[1].1 = None;
    found.tools[2].1 = None;
    found.cache.pieces[0].1 = Presence::Unproven;
    found.cache.pieces[1].1 = Presence::Absent;
    found.obstacles = vec![Obstacle::from(&SetupError::MissingTools { tools: vec![Tool::Npm] })];
    found
}

#[test]
fn a_quiet_host() {
    insta::assert_snapshot!(quiet(), @r#"
host
  cpu             AMD EPYC 9654, 16 usable, x86_64
  governor        performance
  SMT             off
  turbo           off
  memory          64 GiB
  swap            none
  system          Debian GNU/Linux 13 (trixie), kernel 6.12.43
  virtual         no
  cgroup          v2, caps can be enforced
  load            0.10 0.05 0.01 over 1, 5, 15 minutes
  CPU time now    0.2 % used, 0 % stolen
  open files      1024, at most 1048576
  Docker          28.3.1

tools
  java            17.0.15
  mvn             3.8.7
  npm             11.19.1
  pip             23.0.1

cache /home/weir/.cache/weir, 100 GiB free
  kafka 4.4.0             ready
  chdb 26.7.3-stable.1    ready

nothing about this host flags a record

`bench run` is possible here
"#);
}

#[test]
fn a_shared_host_without_rights() {
    insta::assert_snapshot!(shared(), @r#"
host
  cpu             AMD EPYC 9654, 16 usable, x86_64
  governor        none
  SMT             on
  turbo           unknown
  memory          64 GiB
  swap            2 GiB
  system          Debian GNU/Linux 13 (trixie), kernel 6.12.43
  virtual         kvm
  cgroup          v1, caps cannot be enforced: user 1000 is not root and may not write to /sys/fs/cgroup/cpu
  load            3.00 2.50 2.00 over 1, 5, 15 minutes
  CPU time now    61 % used, 4.3 % stolen
  open files      1024, at most 1048576
  Docker          none (/var/run/docker.sock: No such file or directory (os error 2))

tools
  java            17.0.15
  mvn             missing
  npm             missing
  pip             23.0.1

cache /home/weir/.cache/weir, 100 GiB free
  kafka 4.4.0             there, to be verified
  chdb 26.7.3-stable.1    to be fetched

flags on every record made here now
  envelope_unenforced: the envelope was not enforced: user 1000 is not root and may not write to /sys/fs/cgroup/cpu
    run as root, or delegate the cpu and memory controllers
  smt_on: sibling hardware threads share cores
    turn it off for authoritative numbers
  virtualised: the host is virtual (kvm)
    use bare metal for authoritative numbers
  swap_on: the host has 2 GiB of swap; the arm's own is off
    `swapoff -a`
  host_noisy: the host was shared: 4.3 % of CPU time stolen, 61 % used by other processes
    stop what else runs here, or use a host of your own

`bench run` is not possible here
  missing_tools: not installed: npm
    apt-get install -y npm
"#);
}

#[test]
fn the_same_for_machines() {
    let value = serde_json::to_value(shared()).unwrap();
    assert_eq!(value["host"]["cores"], 16);
    assert_eq!(
        value["flags"][3],
        serde_json::json!({
            "flag": "swap_on", "bytes": 2_u64 << 30,
            "wording": "the host has 2 GiB of swap; the arm's own is off", "remedy": "`swapoff -a`",
        })
    );
    assert_eq!(value["cache"]["pieces"][1], serde_json::json!(["chdb 26.7.3-stable.1", "absent"]));
    assert_eq!(value["obstacles"][0]["hint"], "apt-get install -y npm");
    assert_eq!(value["docker"]["Err"], "/var/run/docker.sock: No such file or directory (os error 2)");
}

#[test]
fn turbo_has_two_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("sys/devices/system/cpu");
    assert_eq!(turbo(dir.path()), None);
    std::fs::create_dir_all(cpu.join("cpufreq")).unwrap();
    std::fs::write(cpu.join("cpufreq/boost"), "1\n").unwrap();
    assert_eq!(turbo(dir.path()), Some(true));
    std::fs::create_dir_all(cpu.join("intel_pstate")).unwrap();
    std::fs::write(cpu.join("intel_pstate/no_turbo"), "1\n").unwrap();
    assert_eq!(turbo(dir.path()), Some(false));
}

#[test]
fn another_docker_socket_is_looked_at() {
    assert_eq!(docker_socket(None), Path::new(DOCKER));
    assert_eq!(docker_socket(Some("unix:///run/user/1000/docker.sock")), Path::new("/run/user/1000/docker.sock"));
}

#[test]
fn an_obstacle_names_its_cause() {
    let error = SetupError::io("write to", "/nowhere")(std::io::Error::other("read-only"));
    assert_eq!(Obstacle::from(&error).message, "cannot write to /nowhere: read-only");
}
