// What tests on the host say of a condition that does not hold: they end with its line.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::printf("line %d: not so: %s\n", __LINE__, #condition);     \
      std::exit(1);                                                   \
    }                                                                 \
  } while (false)
