# A Debian root made on this host with debootstrap: the release of the host, minbase and the packages of base.packages.
FROM scratch
ADD weir/debian.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
