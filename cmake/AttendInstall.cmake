# cmake --install: the command with manual pages and completions, and libattend.so (component runtime); headers, static
# libraries, CMake package and pkg-config file (component dev). find_package(attend) provides a target per floor for both kinds of library.
include(CMakePackageConfigHelpers)
set(attend_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
list(JOIN attend_floors " " attend_components)

if(BUILD_SHARED_LIBS)
  # Every component is the same library.
  set(attend_exported attend_shared)
  foreach(floor IN LISTS attend_floors)
    add_library(attend_component_${floor} INTERFACE)
    set_target_properties(attend_component_${floor} PROPERTIES EXPORT_NAME ${floor})
    target_link_libraries(attend_component_${floor} INTERFACE attend_shared)
    list(APPEND attend_exported attend_component_${floor})
  endforeach()
else()
  # attend::attend contains every component.
  add_library(attend_all INTERFACE)
  set_target_properties(attend_all PROPERTIES EXPORT_NAME attend)
  list(TRANSFORM attend_floors PREPEND attend_ OUTPUT_VARIABLE attend_exported)
  target_link_libraries(attend_all INTERFACE ${attend_exported})
  list(APPEND attend_exported attend_all)
endif()
install(TARGETS ${attend_exported} EXPORT attend-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT attend-targets NAMESPACE attend:: DESTINATION ${attend_package_dir} COMPONENT dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attend-config.cmake.in
  ${PROJECT_BINARY_DIR}/attend-config.cmake INSTALL_DESTINATION ${attend_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attend-config-version.cmake
  # Before 1.0 a minor version may break compatibility.
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attend-config.cmake ${PROJECT_BINARY_DIR}/attend-config-version.cmake
  DESTINATION ${attend_package_dir} COMPONENT dev)

# The linker processes each archive once, so a floor is listed before those that it uses.
if(BUILD_SHARED_LIBS)
  set(attend_pc_libs "-lattend")
  set(attend_pc_requires_private "")
  set(attend_pc_libs_private "")
else()
  set(attend_pc_libs ${attend_floors})
  list(REVERSE attend_pc_libs)
  list(TRANSFORM attend_pc_libs PREPEND "-lattend_")
  list(JOIN attend_pc_libs " " attend_pc_libs)
  set(attend_pc_requires_private "fmt libpcre2-8 libutf8proc libjpeg libpng libwebp libwebpdemux sndfile soxr libcrypto")
  set(attend_pc_libs_private "-pthread")
  if(ATTEND_CUDA)
    string(APPEND attend_pc_libs_private " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
  endif()
endif()
# The prefix relative to the file, since cmake --install --prefix may differ from the configured one.
file(RELATIVE_PATH attend_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/attend.pc.in ${PROJECT_BINARY_DIR}/attend.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attend.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

if(ATTEND_CLI)
  install(TARGETS attend_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  # Manual pages and completions are written by the command itself.
  install(CODE "
    set(attend_share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    file(MAKE_DIRECTORY \${attend_share}/man/man1 \${attend_share}/bash-completion/completions
      \${attend_share}/zsh/site-functions \${attend_share}/fish/vendor_completions.d)
    set(attend_program $<TARGET_FILE:attend_cli>)
    execute_process(COMMAND \${attend_program} help --man-folder \${attend_share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
    foreach(file IN ITEMS bash-completion/completions/attend zsh/site-functions/_attend fish/vendor_completions.d/attend.fish)
      string(REGEX MATCH \"^[a-z]+\" attend_shell \${file})
      execute_process(COMMAND \${attend_program} completion \${attend_shell} OUTPUT_FILE \${attend_share}/\${file}
        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT runtime)
endif()
