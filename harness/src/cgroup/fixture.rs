//! Both versions of the interface as trees of plain files, and what the readers and writers make of them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;
const NEW_V2: [(&str, &str); 11] = [
    ("cgroup.procs", ""),
    ("cgroup.kill", ""),
    ("cgroup.controllers", "cpuset cpu io memory pids\n"),
    ("cgroup.subtree_control", "\n"),
    ("cpu.max", "max 100000\n"),
    ("memory.max", "max\n"),
    ("memory.swap.max", "max\n"),
    ("memory.current", "73400320\n"),
    ("memory.peak", "94371840\n"),
    ("pids.current", "17\n"),
    ("memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"),
];
const CPU_STAT_V2: &str = "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\nnice_usec 0\n\
    nr_periods 300\nnr_throttled 75\nthrottled_usec 1234567\nnr_bursts 0\nburst_usec 0\n";
const MEMORY_STAT_V2: &str = "anon 52428800\nfile 20971520\nkernel 1048576\nanon_thp 7\n";
const IO_STAT_V2: &str = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n\
    254:0 rbytes=100 wbytes=200 rios=1 wios=1 dbytes=0 dios=0\n";

/// A host whose `/proc` and mounts are below a scratch directory. Stands in for the kernel where that makes the
/// files of a new group.
struct Host {
    root: TempDir,
}

impl Host {
    fn new(mountinfo: &str, own: &str) -> Self {
        let host = Self { root: tempfile::tempdir().expect("a scratch directory") };
        host.put("proc/self/mountinfo", mountinfo);
        host.put("proc/self/cgroup", own);
        host
    }

    fn v2() -> Self {
        let host = Self::new(
            "24 1 0:22 / / rw - ext4 /dev/vda rw\n\
             31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/user.slice/run-7.scope\n",
        );
        let top = "cpuset cpu io memory hugetlb pids\n";
        host.put("sys/fs/cgroup/cgroup.controllers", top);
        host.put("sys/fs/cgroup/cgroup.subtree_control", "memory pids\n");
        host
    }

    /// Version 1 with cpu and cpuacct in one mount, as most distributions have it, seen from inside a container
    /// whose group is the mount's root; with the hybrid cgroup2 mount that has no controllers.
    fn v1() -> Self {
        let host = Self::new(
            "40 24 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             41 24 0:31 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             42 24 0:32 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             43 24 0:33 /docker/abc /sys/fs/cgroup/blkio ro - cgroup cgroup rw,blkio\n\
             44 24 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n",
            "4:memory:/docker/abc/job\n3:pids:/docker/abc/job\n2:cpu,cpuacct:/docker/abc/job\n0::/\n",
        );
        host.put("sys/fs/cgroup/unified/cgroup.controllers", "\n");
        for name in ["cpu,cpuacct", "memory", "pids"] {
            std::fs::create_dir_all(host.at(&format!("sys/fs/cgroup/{name}"))).expect("writable");
        }
        host
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
        std::fs::write(path, text).expect("writable");
    }

    fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).expect("it is there")
    }

    fn detect(&self, euid: u32) -> Hierarchy {
        Hierarchy::detect_at(self.root.path(), euid).expect("/proc is there")
    }

    /// The files the kernel would make in a new version 2 group.
    fn group_v2(&self, path: &str) {
        for (name, text) in NEW_V2 {
            self.put(&format!("sys/fs/cgroup/{path}/{name}"), text);
        }
        for (name, text) in [("cpu.stat", CPU_STAT_V2), ("memory.stat", MEMORY_STAT_V2), ("io.stat", IO_STAT_V2)] {
            self.put(&format!("sys/fs/cgroup/{path}/{name}"), text);
        }
    }

    /// The files the kernel would make in a new version 1 group, with or without swap accounting.
    fn group_v1(&self, path: &str, swap_accounting: bool) {
        let put = |mount: &str, name: &str, text: &str| {
            self.put(&format!("sys/fs/cgroup/{mount}/{path}/{name}"), text);
        };
        for mount in ["cpu,cpuacct", "memory", "pids"] {
            put(mount, "cgroup.procs", "");
        }
        put("cpu,cpuacct", "cpu.cfs_quota_us", "-1\n");
        put("cpu,cpuacct", "cpu.cfs_period_us", "100000\n");
        put("cpu,cpuacct", "cpu.stat", "nr_periods 40\nnr_throttled 10\nthrottled_time 2500000\n");
        put("cpu,cpuacct", "cpuacct.usage", "3000000000\n");
        put("cpu,cpuacct", "cpuacct.stat", "user 250\nsystem 50\n");
        put("memory", "memory.limit_in_bytes", "9223372036854771712\n");
        put("memory", "memory.usage_in_bytes", "73400320\n");
        put("memory", "memory.max_usage_in_bytes", "94371840\n");
        put("memory", "memory.stat", "cache 1\nrss 2\ntotal_cache 3\ntotal_rss 52428800\n");
        put("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        put("memory", "memory.swappiness", "60\n");
        if swap_accounting {
            put("memory", "memory.memsw.limit_in_bytes", "9223372036854771712\n");
        }
        put("pids", "pids.current", "9\n");
    }
}

#[test]
fn a_containers_group_is_found_under_both_versions_and_both_drivers() {
    let find = |host: &Host, id: &str| Cgroup::of_container_at(host.root.path(), id);
    let host = Host::v2();
    host.group_v2("system.slice/docker-0123abc.scope");
    host.group_v2("docker/456def");
    let scope = find(&host, "0123abc").expect("systemd made it");
    assert_eq!(scope.dirs(), [host.at("sys/fs/cgroup/system.slice/docker-0123abc.scope")]);
    assert_eq!(find(&host, "456def").expect("the runtime made it").version(), Version::V2);
    let host = Host::v1();
    host.group_v1("docker/456def", true);
    let group = find(&host, "456def").expect("it is there");
    assert_eq!(group.version(), Version::V1);
    assert!(group.dirs().contains(&host.at("sys/fs/cgroup/memory/docker/456def").as_path()));
    assert!(!group.dirs().iter().any(|dir| dir.ends_with("blkio")), "it has no group there");
    assert_eq!(find(&host, "0123abc").expect_err("it is not here").code(), "cgroup_no_container");
}

const CAPS: Caps = Caps { cpus: 1.5, memory: 512 * MIB + 1 };

#[test]
fn v2_caps_are_written_as_the_kernel_wants_them_and_read_back() {
    let host = Host::v2();
    host.group_v2("weir");
    host.group_v2("weir/s");
    host.group_v2("weir/s/sut");
    let hierarchy = host.detect(0);
    assert_eq!((hierarchy.version(), hierarchy.unenforced()), (Some(Version::V2), None));
    let group = hierarchy.create("weir/s/sut").expect("it can be made");
    assert_eq!(group.dirs(), [host.at("sys/fs/cgroup/weir/s/sut")]);
    for (dir, want) in [("", "+cpu +io"), ("weir/", "+cpu +memory +pids +io")] {
        let file = format!("sys/fs/cgroup/{dir}cgroup.subtree_control");
        assert!(host.get(&file).starts_with(want), "what is on already is not asked for again");
    }
    assert_eq!(host.get("sys/fs/cgroup/weir/s/sut/cgroup.subtree_control"), "\n", "a leaf stays one");

    let unbounded = group.read_back().expect("readable");
    assert_eq!((unbounded.cpus, unbounded.memory, unbounded.swap), (f64::INFINITY, u64::MAX, u64::MAX));
    group.apply(CAPS).expect("writable");
    assert!(host.get("sys/fs/cgroup/weir/s/sut/cpu.max").starts_with("150000 100000"));
    assert!(host.get("sys/fs/cgroup/weir/s/sut/memory.max").starts_with("536870912"));
    // A regular file keeps what the new text does not cover; the kernel's does not.
    host.put("sys/fs/cgroup/weir/s/sut/cpu.max", "150000 100000\n");
    host.put("sys/fs/cgroup/weir/s/sut/memory.max", "536870912\n");
    host.put("sys/fs/cgroup/weir/s/sut/memory.swap.max", "0\n");
    let read = group.assert_caps(CAPS).expect("as asked");
    assert_eq!((read.cpus, read.memory, read.swap), (1.5, 512 * MIB, 0));
}

#[test]
fn a_cap_that_reads_back_otherwise_names_file_asked_and_got() {
    let host = Host::v2();
    host.group_v2("g");
    let group = host.detect(0).group("g").expect("usable");
    let file = |name: &str| host.at(&format!("sys/fs/cgroup/g/{name}")).display().to_string();
    host.put("sys/fs/cgroup/g/cpu.max", "50000 100000\n");
    host.put("sys/fs/cgroup/g/memory.max", "536870912\n");
    let error = group.assert_caps(CAPS).expect_err("half a CPU is not one and a half");
    let want = format!("cap not applied: {} was set to 1.5 CPUs and reads 0.5 CPUs", file("cpu.max"));
    assert_eq!((error.code(), error.to_string()), ("cgroup_cap_mismatch", want));
    host.put("sys/fs/cgroup/g/cpu.max", "150000 100000\n");
    let error = group.assert_caps(CAPS).expect_err("swap is on").to_string();
    assert!(error.contains(&file("memory.swap.max")) && error.contains("no swap"), "{error}");
    host.put("sys/fs/cgroup/g/memory.max", "max\n");
    let error = group.assert_caps(CAPS).expect_err("no bound").to_string();
    assert!(error.contains(&file("memory.max")) && error.contains("536870912 bytes"), "{error}");
}

#[test]
fn v2_usage_is_read_in_full() {
    let host = Host::v2();
    host.group_v2("g");
    let group = host.detect(0).group("g").expect("usable");
    let want = Usage {
        cpu_us: 5_000_000,
        user_us: 4_000_000,
        system_us: 1_000_000,
        periods: 300,
        throttled: 75,
        throttled_us: 1_234_567,
        anon: 50 * MIB,
        current: 70 * MIB,
        peak: Some(90 * MIB),
        pids: Some(17),
        io_read: Some(4196),
        io_written: Some(8392),
        oom_kills: 1,
    };
    assert_eq!(group.usage().expect("readable"), want);
    // Without a quota, on an older kernel, without the io controller.
    let cpu = "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n";
    host.put("sys/fs/cgroup/g/cpu.stat", cpu);
    for name in ["memory.peak", "io.stat"] {
        std::fs::remove_file(host.at(&format!("sys/fs/cgroup/g/{name}"))).expect("it was there");
    }
    let lesser = group.usage().expect("readable");
    assert_eq!((lesser.periods, lesser.throttled, lesser.throttled_us), (0, 0, 0));
    assert_eq!((lesser.peak, lesser.io_read, lesser.io_written), (None, None, None));
    host.put("sys/fs/cgroup/g/cpu.stat", "usage 5\n");
    let error = group.usage().expect_err("no such key");
    assert!(error.to_string().ends_with("cpu.stat: no usage_usec in it"), "{error}");
}

#[test]
fn v1_caps_are_written_in_every_mount_and_read_back() {
    let host = Host::v1();
    host.group_v1("weir/s/sut", true);
    let hierarchy = host.detect(0);
    assert_eq!((hierarchy.version(), hierarchy.unenforced()), (Some(Version::V1), None));
    let group = hierarchy.create("weir/s/sut").expect("it can be made");
    let dir = |mount: &str| host.at(&format!("sys/fs/cgroup/{mount}/weir/s/sut"));
    // blkio is mounted read-only here and left out; it is not needed for caps.
    assert_eq!(group.dirs(), [dir("memory"), dir("cpu,cpuacct"), dir("pids")]);
    let unbounded = group.read_back().expect("readable");
    assert_eq!((unbounded.cpus, unbounded.memory), (f64::INFINITY, u64::MAX));
    group.apply(CAPS).expect("writable");
    let read = |mount: &str, name: &str| host.get(&format!("sys/fs/cgroup/{mount}/weir/s/sut/{name}"));
    assert_eq!(read("cpu,cpuacct", "cpu.cfs_quota_us"), "150000");
    for name in ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"] {
        assert!(read("memory", name).starts_with("536870912"));
        host.put(&format!("sys/fs/cgroup/memory/weir/s/sut/{name}"), "536870912\n");
    }
    let got = group.assert_caps(CAPS).expect("as asked");
    assert_eq!((got.cpus, got.memory, got.swap), (1.5, 512 * MIB, 0));
    host.put("sys/fs/cgroup/memory/weir/s/sut/memory.memsw.limit_in_bytes", "1073741824\n");
    let error = group.assert_caps(CAPS).expect_err("512 MiB of swap").to_string();
    assert!(error.contains("memory.memsw.limit_in_bytes was set to no swap"), "{error}");
}

#[test]
fn v1_without_swap_accounting_turns_swappiness_off() {
    let host = Host::v1();
    host.group_v1("g", false);
    let group = host.detect(0).group("g").expect("usable");
    group.apply(CAPS).expect("writable");
    assert!(host.get("sys/fs/cgroup/memory/g/memory.swappiness").starts_with('0'));
    host.put("sys/fs/cgroup/memory/g/memory.swappiness", "0\n");
    assert_eq!(group.read_back().expect("readable").swap, 0);
}

#[test]
fn v1_usage_is_read_across_the_mounts() {
    let host = Host::v1();
    host.group_v1("g", true);
    let group = host.detect(0).group("g").expect("usable");
    let tick = crate::runtime::proctree::tick_us();
    let want = Usage {
        cpu_us: 3_000_000,
        user_us: 250 * tick,
        system_us: 50 * tick,
        periods: 40,
        throttled: 10,
        throttled_us: 2500,
        anon: 50 * MIB,
        current: 70 * MIB,
        peak: Some(90 * MIB),
        pids: Some(9),
        io_read: None,
        io_written: None,
        oom_kills: 3,
    };
    assert_eq!(group.usage().expect("readable"), want);
    // With blkio mounted for writing, its bytes are summed over the devices.
    let mountinfo = host.get("proc/self/mountinfo").replace("blkio ro", "blkio rw");
    host.put("proc/self/mountinfo", &mountinfo);
    let bytes = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n254:0 Read 1\n254:0 Write 2\nTotal 33\n";
    host.put("sys/fs/cgroup/blkio/g/blkio.throttle.io_service_bytes_recursive", bytes);
    let usage = host.detect(0).group("g").expect("usable").usage().expect("readable");
    assert_eq!((usage.io_read, usage.io_written), (Some(11), Some(22)));
}

#[test]
fn members_are_listed_through_the_subtree_and_killed_by_the_kernel_under_v2() {
    let host = Host::v2();
    host.group_v2("g");
    host.group_v2("g/nested");
    let own = std::process::id();
    host.put("sys/fs/cgroup/g/cgroup.procs", &format!("{own}\n4000000000\n"));
    host.put("sys/fs/cgroup/g/nested/cgroup.procs", &format!("{own}\n"));
    let group = host.detect(0).group("g").expect("usable");
    assert_eq!(group.procs().expect("readable"), [own, 4_000_000_000]);
    assert_eq!(group.kill_once().expect("writable"), [own], "who is gone is not counted");
    assert_eq!(host.get("sys/fs/cgroup/g/cgroup.kill"), "1");
    group.enter(own).expect("writable");
    assert!(host.get("sys/fs/cgroup/g/cgroup.procs").starts_with(&own.to_string()));
}

#[test]
fn v1_members_are_killed_one_by_one_and_cannot_fork_meanwhile() {
    let host = Host::v1();
    host.group_v1("g", true);
    host.put("sys/fs/cgroup/pids/g/pids.max", "max\n");
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep(1) is there");
    for mount in ["memory", "pids", "cpu,cpuacct"] {
        host.put(&format!("sys/fs/cgroup/{mount}/g/cgroup.procs"), &format!("{}\n", child.id()));
    }
    let group = host.detect(0).group("g").expect("usable");
    // The plain files go on naming the child; who waits for it makes it vanish.
    let waiter = std::thread::spawn(move || child.wait());
    assert_eq!(group.kill().expect("it dies"), 1);
    assert_eq!(host.get("sys/fs/cgroup/pids/g/pids.max").get(..1), Some("0"));
    let status = waiter.join().expect("no panic").expect("ours to wait for");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn removal_takes_what_is_below_along_and_forgives_what_is_gone() {
    let host = Host::v1();
    let hierarchy = host.detect(0);
    let group = hierarchy.create("weir/s/sut").expect("it can be made");
    let nested = host.at("sys/fs/cgroup/memory/weir/s/sut/nested");
    std::fs::create_dir(nested).expect("writable");
    assert_eq!(hierarchy.sittings(), ["s"]);
    group.remove().expect("empty");
    group.remove().expect("gone already");
    assert!(group.dirs().iter().all(|dir| !dir.exists()));
    hierarchy.group("weir/s").and_then(|sitting| sitting.remove()).expect("empty");
    assert!(hierarchy.sittings().is_empty());
}

#[test]
fn without_root_the_own_group_is_divided_if_it_is_delegated() {
    let host = Host::v2();
    let own = "sys/fs/cgroup/user.slice/run-7.scope";
    let dir = host.at(own);
    // The scratch directory belongs to the user that runs the tests, who is the delegate here.
    host.put(&format!("{own}/cgroup.controllers"), "memory pids\n");
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&dir).expect("made"));
    let user = if uid == 0 { 1000 } else { uid };
    std::os::unix::fs::chown(&dir, Some(user), None).expect("ours, or we are root");
    let file = dir.join("cgroup.controllers");
    let hierarchy = host.detect(user);
    let missing = vec!["cpu"];
    assert_eq!(hierarchy.unenforced(), Some(&Unenforced::NotDelegated { file, missing }));
    host.put(&format!("{own}/cgroup.controllers"), "cpu memory pids\n");
    let hierarchy = host.detect(user);
    assert_eq!(hierarchy.unenforced(), None);
    let group = hierarchy.group("weir/s/sut").expect("usable");
    assert_eq!(group.dirs(), [dir.join("weir/s/sut")]);
    // In the leaf it stepped into, it still divides the group above.
    host.put("proc/self/cgroup", "0::/user.slice/run-7.scope/weir-harness\n");
    assert_eq!(host.detect(user).group("weir/s/sut").expect("usable"), group);
    let hierarchy = host.detect(user + 1);
    let why = hierarchy.unenforced().expect("not its own");
    assert_eq!(*why, Unenforced::NotPermitted { dir, euid: user + 1 });
    assert!(why.remedy().contains("Delegate=yes"));
    let error = hierarchy.create("weir/s/sut").expect_err("not permitted");
    assert_eq!(error.code(), "cgroup_unenforced");
}

#[test]
fn v1_without_root_lies_below_the_own_group_seen_from_the_mount() {
    let host = Host::v1();
    for mount in ["cpu,cpuacct", "memory", "pids"] {
        let dir = host.at(&format!("sys/fs/cgroup/{mount}/job"));
        std::fs::create_dir(&dir).expect("writable");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&dir, open).expect("ours");
    }
    let group = host.detect(77).group("weir/s/sut").expect("usable");
    assert_eq!(group.dirs()[0], host.at("sys/fs/cgroup/memory/job/weir/s/sut"));
}

#[test]
fn a_host_that_cannot_cap_says_exactly_why() {
    let nothing = Host::new("24 1 0:22 / / rw - ext4 /dev/vda rw\n", "0::/\n");
    let hierarchy = nothing.detect(0);
    assert_eq!(hierarchy.version(), None);
    let missing = vec!["cpu", "cpuacct", "memory"];
    assert_eq!(hierarchy.unenforced(), Some(&Unenforced::NoController { missing }));

    let read_only = Host::v2();
    let mountinfo = read_only.get("proc/self/mountinfo").replace("rw,nosuid", "ro,nosuid");
    read_only.put("proc/self/mountinfo", &mountinfo);
    let why = read_only.detect(0).unenforced().map(ToString::to_string).expect("read-only");
    let at = read_only.at("sys/fs/cgroup").display().to_string();
    assert_eq!(why, format!("{at} is mounted read-only"));

    let no_memory = Host::v1();
    let mountinfo = no_memory.get("proc/self/mountinfo").replace("rw,memory", "rw,hugetlb");
    no_memory.put("proc/self/mountinfo", &mountinfo);
    let hierarchy = no_memory.detect(0);
    let missing = vec!["memory"];
    assert_eq!(hierarchy.unenforced(), Some(&Unenforced::NoController { missing }));
}

#[test]
fn a_trial_that_is_refused_becomes_the_reason() {
    // No kernel here: a new directory has no `cpu.cfs_period_us` to write to.
    let host = Host::v1();
    let hierarchy = host.detect(0).proven("s");
    let why = hierarchy.unenforced().map(ToString::to_string).expect("refused");
    assert!(why.starts_with("a trial group was refused: cannot write `100000` to "), "{why}");
    let trial = Path::new("sys/fs/cgroup/memory/weir/s/trial");
    assert!(!host.root.path().join(trial).exists(), "and leaves no group");
}
