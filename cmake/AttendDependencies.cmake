# Every outside library, in one place. All are Debian packages (scripts/setup.sh installs them).
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

# Debian's CMake config of oneDNN demands OpenCL, so find the library and the header by hand.
find_library(DNNL_LIBRARY NAMES dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR NAMES dnnl.hpp REQUIRED)
add_library(attend_dnnl INTERFACE IMPORTED)
target_link_libraries(attend_dnnl INTERFACE ${DNNL_LIBRARY})
target_include_directories(attend_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})

if(ATTEND_CLI)
  find_package(CLI11 2.1 REQUIRED)
endif()
if(ATTEND_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()
