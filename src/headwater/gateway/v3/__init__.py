"""The paths of Confluent's REST Proxy, version 3, so that scripts written for it run with another host."""
