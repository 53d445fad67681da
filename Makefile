KVER ?= 7.2.12+deb13-amd64
