# attend_floor(NAME [COLD] [HEADERS a.h ...] SOURCES a.cc ... [PUBLIC targets] [PRIVATE targets])
#
# One static library per floor of src/attend (docs/architecture.md). A floor links only floors below it in that list.
# HEADERS are installed, and libattend.so exports their declarations. A floor without HEADERS is used only by the
# commands and is not part of the library. scripts/check_floors.py checks the includes of all files. COLD: the floor
# does not run in a step, so it is compiled with -O1, which needs two thirds of the compile time.
function(attend_floor name)
  cmake_parse_arguments(ARG "COLD" "" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(attend_${name} STATIC ${ARG_SOURCES})
  add_library(attend::${name} ALIAS attend_${name})
  set_target_properties(attend_${name} PROPERTIES
    EXPORT_NAME ${name}
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(attend_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(attend_${name} PUBLIC cxx_std_20)
  target_link_libraries(attend_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  attend_warnings(attend_${name})
  if(ARG_COLD OR (ATTEND_OPTIMIZE_KERNELS_ONLY AND NOT name STREQUAL "kernels"))
    target_compile_options(attend_${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()

  if(NOT ARG_HEADERS)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY ATTEND_FLOORS ${name})
  if(ATTEND_INSTALL)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
    foreach(header IN LISTS ARG_HEADERS)
      cmake_path(GET header PARENT_PATH family)
      install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder}/${family} COMPONENT dev)
    endforeach()
  endif()
endfunction()

function(attend_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>
    # gcc 12 reports overlapping copies in every operator+ of a literal and a string (GCC bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(ATTEND_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endfunction()

# Compile options and libraries of tests: gtest, and these targets.
function(attend_test_options name link)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE attend_test_main ${link} GTest::gmock GTest::gtest)
  target_compile_definitions(${name} PRIVATE ATTEND_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Compiling a test usually takes longer than running it. The tested code keeps its options.
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  attend_warnings(${name})
endfunction()

# attend_test(NAME SOURCES ... LINK targets... [LABELS labels] [PREFIX prefix] [TIMEOUT seconds])
#
# One executable; each TEST in it is one ctest case, whose name starts with the prefix. Cases with gpu or Gpu in their
# names have the label gpu instead of the program's own: ctest -L gpu. With ATTEND_TEST_SHARDS the cases are shards of
# the program, among which its tests are distributed.
function(attend_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PREFIX" "SOURCES;LINK;LABELS" ${ARGN})
  # Long cases start first, so that none runs by itself at the end.
  set(properties)
  if(ARG_TIMEOUT)
    list(APPEND properties COST ${ARG_TIMEOUT})
  else()
    set(ARG_TIMEOUT 300)
  endif()
  # With a sanitizer a test needs up to ten times as long.
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    math(EXPR ARG_TIMEOUT "10 * ${ARG_TIMEOUT}")
  endif()
  # If gcc inlines this operator delete, it reports a mismatch of new and free.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cc PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${name} ${ARG_SOURCES})
  attend_test_options(${name} "${ARG_LINK}")
  list(APPEND properties TIMEOUT ${ARG_TIMEOUT})
  # RapidCheck's default of 100 cases per property is too low.
  list(APPEND properties ENVIRONMENT "RC_PARAMS=max_success=1000")
  set(labels)
  if(ARG_LABELS)
    set(labels LABELS ${ARG_LABELS})
  endif()
  if(ATTEND_TEST_SHARDS)
    math(EXPR last_shard "${ATTEND_TEST_SHARDS} - 1")
    foreach(shard RANGE ${last_shard})
      add_test(NAME ${ARG_PREFIX}${name}.${shard} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${ARG_PREFIX}${name}.${shard} PROPERTIES ${properties} TIMEOUT 1800
        ENVIRONMENT "RC_PARAMS=max_success=1000;GTEST_TOTAL_SHARDS=${ATTEND_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}"
        ${labels})
    endforeach()
    return()
  endif()
  set(discovery TEST_PREFIX "${ARG_PREFIX}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${name} ${discovery} TEST_FILTER "-*gpu*:*Gpu*" PROPERTIES ${properties} ${labels})
  gtest_discover_tests(${name} ${discovery} TEST_FILTER "*gpu*:*Gpu*" TEST_LIST ${name}_gpu_cases
    PROPERTIES ${properties} LABELS gpu)
endfunction()
